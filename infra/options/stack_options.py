"""The table of options, and how they are read from the context (``-c key=value``) of a deployment.

Each option is a field of ``StackOptions``: its type, context key, rule with the default, and meaning are there and
nowhere else. Which keys are refused, what an app with the construct may give, and docs/reference/settings.md follow.
A cluster is only known by its name: nothing is looked up during synthesis, so the template can be built anywhere.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from infra import function_sizes
from infra.function_sizes import HALF_VCPU, LARGE_CLUSTER, LARGEST_CLUSTER, LEAST_MEMORY, MOST_MEMORY
from infra.options import formats, shadow_pools
from infra.options.rules import Option, OptionError, Rule, choice, names, number, option, separated, switch, text, words
from shared.api import labels

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.api.buffer_signals import Event

__all__ = ["KEYS", "OPTIONS", "NoClusterError", "OptionError", "StackOptions", "cluster_name", "clusters", "parse"]

Bundle = Literal["full", "source"]
Observability = Literal["lean", "full"]
PlannedPods = Literal["nominated", "off"]
Architecture = Literal["arm64", "amd64"]
Relay = Literal["function", "pod", "webhook"]
DEFAULT_BUS = "default"
_BOTH: tuple[Architecture, ...] = ("arm64", "amd64")
_RELAY_MEMORY = function_sizes.SIZES[function_sizes.RELAY].memory
_MEMORY = "MiB from {least} to {most}"


class NoClusterError(OptionError):
    """The context names no cluster."""


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """The options of one cluster's stack.

    ``webhook_digest`` is only given where the stack doesn't generate the webhook's path, because users apply the
    cluster's objects. ``oidc_provider`` is the host and path of the issuer, and ``commitment_share`` a number as text.
    """

    cluster: str
    """The EKS cluster's name. One stack is created for it. Required, but for `clusters`."""
    fleet: str = option("fleet", text(formats.fleet))
    """The name of a [fleet](../fleets.md): one more stack has what the clusters of the list `clusters` share. Default:
    none, and they share nothing."""
    bundle: Bundle = option("bundle", choice("full", "source"))
    """`full` (default) includes the functions' code and dependencies; `source` leaves them out, to inspect only the
    template."""
    apply: bool = option("clusterSide", switch("applied", "printed", is_on=True))
    """`applied` (default): the stack applies CustomResourceDefinitions, RBAC and the relay. `printed`: you apply the
    output of `tenon manifests`."""
    kinds: bool = option("kinds", switch("applied", "kept", is_on=True))
    """`applied` (default; refused where the CustomResourceDefinitions are another product's), or `kept`."""
    capacity_buffers: bool = option("capacityBuffers", switch("applied", "kept", is_on=True))
    """`applied` (default; refused where another autoscaler brought the definition of CapacityBuffers), or `kept`."""
    relay: Relay = option("relay", choice("function", "pod", "webhook"))
    """`function` (default): a function holds the watch of the cluster, and nothing of Tenon's runs in the cluster.
    `pod`: a Deployment with two pods holds it, with the image and the role that the next keys give. `webhook`: nothing
    watches the cluster, and an admission webhook announces new pods, for clusters that idle ([what it
    lacks](../architecture.md#the-webhook))."""
    cluster_size: int = option("clusterSize", number(LARGE_CLUSTER, 1, LARGEST_CLUSTER, "nodes from {least} to {most}"))
    """Nodes that the cluster may grow to; default: 5000. From 5001 on, functions get the memory for
    [15,000 nodes and 450,000 pods](../scale.md)."""
    relay_memory: int = option("relayMemory", number(_RELAY_MEMORY, LEAST_MEMORY, MOST_MEMORY, _MEMORY))
    """MiB of memory of the relay function; default: 128. [How much a cluster needs](../architecture.md#the-relay)."""
    sweep_memory: int = option("sweepMemory", number(HALF_VCPU, HALF_VCPU, MOST_MEMORY, _MEMORY))
    """MiB of memory of the functions lifecycle and disruption; default: 885, half of a processor. With 1769 they sweep
    clusters of more than 1,000 nodes twice as fast."""
    relay_image: str = option("relayImage", text(formats.anything))
    """URI of the relay's image; default: Docker builds one during the deployment."""
    relay_architectures: tuple[Architecture, ...] = option(
        "relayArchitecture",
        words(
            {"both": _BOTH, "arm64": ("arm64",), "amd64": ("amd64",)},
            lambda value: "both" if {*value} == {*_BOTH} else ",".join(sorted({*value})),
        ),
    )
    """`both` (default): the image is built for arm64 and amd64, which needs a Docker with its containerd image store
    (the default since Docker 29). `arm64` or `amd64`: only for one, with any Docker, and the relay only runs on nodes
    of it."""
    # Kubernetes' own form isn't the context's: that an app's fields have any is all that is checked.
    relay_tolerations: tuple[Mapping[str, str], ...] = option(
        "relayTolerations", names(formats.toleration, written=lambda value: "*" if value else "")
    )
    """Taints that the relay tolerates, separated by commas, as `KEY[=VALUE][:EFFECT]`; `*` for all."""
    webhook_digest: str = option("webhookDigest", text(formats.anything))
    """With `relay=webhook` and `clusterSide=printed`: the SHA-256 digest of the webhook's secret path, in hexadecimal
    ([how](../upgrades.md#the-webhook-with-printed-manifests))."""
    oidc_provider: str = option("oidcProvider", text(formats.oidc_provider))
    """The cluster's OIDC issuer: the relay gets its role by IRSA, and IAM must have the issuer's provider. Default: by
    EKS Pod Identity, which the China Regions don't have."""
    function_architecture: Architecture = option("functionArchitecture", choice("arm64", "amd64"))
    """`arm64` (default), or `amd64` where a Region's Lambda has no arm64."""
    node_role: str = option("nodeRole", text(formats.anything))
    """An existing IAM role for nodes; default: the stack creates one."""
    node_roles: tuple[str, ...] = option("nodeRoles", names(formats.anything))
    """Other roles that node classes may use, separated by commas. Functions can't pass any other role."""
    permissions_boundary: str = option("permissionsBoundary", text(formats.boundary))
    """The managed policy that limits every role of the stack, by name or ARN, for accounts that demand one; default:
    none. It must allow what the [roles do](../reference/iam.md)."""
    subnets: tuple[str, ...] = option("subnets", names(formats.anything))
    """Subnets of the functions, separated by commas, for clusters with a private endpoint; requires `securityGroups`.
    The catalog function stays outside: it doesn't call the cluster, but the Pricing API."""
    security_groups: tuple[str, ...] = option("securityGroups", names(formats.anything))
    """Security groups of the functions in those subnets."""
    reserve: bool = option("reservedConcurrency", switch("false", "true"))
    """`true` reserves one concurrent execution each for lifecycle and catalog, which limits their calls to EC2 in a
    burst of events, and limits how many batches of a queue are handled at once. Default: `false`, because Lambda keeps
    100 executions unreserved, and new accounts don't have more; `tenon preflight` says what the quota allows."""
    kms_keys: tuple[str, ...] = option("kmsKeys", names(formats.kms_key))
    """ARNs of customer managed KMS keys for nodes' volumes; those that launch may use them through EC2."""
    alarm_topic: str = option("alarmTopic", text(formats.topic))
    """ARN of an SNS topic that alarms notify; default: alarms only change their state."""
    observability: Observability = option("observability", choice("lean", "full"))
    """`lean`: one alarm (`unwell`) and the metric that it needs. `full`: an alarm for each symptom, all metrics, and a
    dashboard, for about USD 9 more a month. Default: `lean`."""
    tracing: bool = option("tracing", switch("off", "active"))
    """`active` sends a trace of each invocation to X-Ray (about a dollar a month); default: `off`."""
    planned_pods: PlannedPods = option("plannedPods", choice("nominated", "off"))
    """`nominated` (default): pending pods are nominated for the nodes that were launched for them
    (`status.nominatedNodeName`), so that kube-scheduler binds them as planned; `off`: kube-scheduler fills nodes in its
    own order."""
    buffer_queues: tuple[str, ...] = option("bufferQueues", names(formats.source(labels.SQS_QUEUE), is_set=True))
    """SQS queues of this account and Region that [CapacityBuffers may
    follow](../capacity-buffers.md#queues-alarms-and-events), by name, separated by commas. Without these, alarms and
    events, the function `buffers` isn't deployed."""
    buffer_alarms: tuple[str, ...] = option("bufferAlarms", names(formats.source(labels.CLOUDWATCH_ALARM), is_set=True))
    """CloudWatch alarms of metrics that CapacityBuffers may follow, by name, separated by commas."""
    buffer_events: tuple[Event, ...] = option("bufferEvents", names(formats.event, is_set=True))
    """Events that CapacityBuffers may follow, as `SOURCE/DETAIL-TYPE` separated by commas."""
    buffer_event_bus: str = option("bufferEventBus", text(formats.event_bus, default=DEFAULT_BUS))
    """The bus of these events; default: `default`."""
    standby: bool = option("standby", switch("off", "on"))
    """`on` lets functions stop and start instances of NodePools, which standby nodes need ([standby
    nodes](../standby-nodes.md)); default: `off`."""
    reboot: bool = option("reboot", switch("off", "on"))
    """`on` lets a function reboot instances of NodePools, so that nodes may be [rebooted in
    place](../disruption.md#reboot-in-place) instead of replaced; default: `off`."""
    zonal_shift: bool = option("zonalShift", switch("off", "on"))
    """`on` follows ARC's zonal shifts of the cluster: nothing is launched or disrupted in a zone that traffic is
    shifted away from ([zonal shift](../zonal-shift.md)); default: `off`."""
    node_groups: bool = option("nodeGroups", switch("off", "on"))
    """`on` lets functions scale the cluster's Auto Scaling groups and managed node groups ([node
    groups](../node-groups.md)); default: `off`."""
    commitments: bool = option("commitments", switch("off", "on"))
    """`on` reads the account's Savings Plans and Reserved Instances each hour, so that decisions count them
    ([commitments](../commitments.md)); default: `off`."""
    commitment_share: str = option("commitmentShare", text(formats.anything))
    """With `commitments=on`: the part of the account's commitments that the cluster may use, 0 to 1; default: its part
    of the running instances."""
    shadow: bool = option("mode", switch("active", "shadow"))
    """`shadow` deploys only what [compares](../shadow-mode.md) what Tenon would do with what another autoscaler does,
    and changes nothing; default: `active`."""
    # A run takes up to two minutes; after an hour without one nothing is counted.
    shadow_interval: int = option("shadowInterval", number(5, 2, 30, "minutes, {least} to {most}"))
    """Minutes between two runs of shadow mode, 2 to 30; default: `5`."""
    shadow_pools: tuple[Mapping[str, Any], ...] = option("shadowPools", Rule(default=(), read=shadow_pools.read))
    """A file with NodePools and node classes for shadow mode; default: the cluster's own, and NodePools
    [derived](../shadow-mode.md#nodepools) from the nodes of Cluster Autoscaler and EKS Auto Mode."""

    @property
    def reads_demand(self) -> bool:
        """Whether a function reads what queues and alarms ask for."""
        return bool(self.buffer_queues or self.buffer_alarms)

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions of the deployment."""
        if self.shadow:
            return function_sizes.SHADOW_MODE
        optional = {
            function_sizes.CATALOG: not self.fleet,
            function_sizes.BUFFERS: self.reads_demand or bool(self.buffer_events),
            function_sizes.NODE_GROUPS: self.node_groups,
            function_sizes.RELAY: self.relay == "function",
            function_sizes.WEBHOOK: self.relay == "webhook",
        }
        return tuple(name for name in function_sizes.ALL if optional.get(name, True))


OPTIONS: Mapping[str, Option] = {
    field.name: field.metadata["option"] for field in dataclasses.fields(StackOptions) if field.metadata
}
"""The options by field, without the cluster's name."""
KEYS = ("cluster", "clusters", *(known.key for known in OPTIONS.values()))
"""All context keys."""

# https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateCluster.html
_CLUSTER = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}")
_POD_ONLY = frozenset({"relayImage", "relayArchitecture", "relayTolerations", "oidcProvider"})
"""Keys that follow ``relay`` in the table."""
_DIGEST = re.compile("[0-9a-f]{64}")
_SHARE = re.compile(r"0|1(\.0+)?|0?\.\d{1,6}")


def clusters(context: Mapping[str, object]) -> tuple[str, ...]:
    """The clusters to build stacks for: ``cluster`` if it is given, else the list ``clusters``.

    Raises:
        NoClusterError: no cluster is given.
        OptionError: EKS doesn't allow a name.
    """
    for key in ("cluster", "clusters"):
        if listed := separated(context.get(key, ()), f"-c {key}"):
            return tuple(cluster_name(name, option="-c cluster") for name in listed)
    raise NoClusterError("no cluster: give -c cluster=NAME")


def cluster_name(name: str, *, option: str) -> str:
    """The same name, if EKS allows it.

    Raises:
        OptionError: EKS doesn't allow it.
    """
    if not _CLUSTER.fullmatch(name):
        raise OptionError(f'{option}={name}: an EKS cluster\'s name is letters, digits, "-" and "_", at most 100')
    return name


def parse(context: Mapping[str, object], *, cluster: str, region: str | None = None) -> StackOptions:
    """The options of one cluster's stack. ``region`` is where it is deployed, None if that isn't known.

    Raises:
        OptionError: a value is invalid, or doesn't go with another.
    """
    values: dict[str, Any] = {}
    for name, known in OPTIONS.items():
        if known.key in _POD_ONLY and context.get(known.key) and values.get("relay") != "pod":
            raise OptionError(f"-c {known.key}: is for the relay as a pod; give -c relay=pod, or leave it out")
        if known.key in context:
            values[name] = known.rule.read(context[known.key], f"-c {known.key}")
    options = StackOptions(cluster=cluster, **values)
    for problem in _contradictions(options, context, region or ""):
        raise OptionError(problem)
    return options


def _contradictions(options: StackOptions, context: Mapping[str, object], region: str) -> Iterator[str]:
    """What is wrong with values that don't go together."""
    if options.fleet:
        yield from _of_fleet(options, context)
    if bool(options.subnets) != bool(options.security_groups):
        yield "-c subnets and -c securityGroups: give both to run the functions in a VPC"
    yield from _of_relay(options, region)
    if options.commitments and options.shadow:
        yield "-c commitments=on: not together with -c mode=shadow, which compares list prices"
    share = options.commitment_share
    if share and not (options.commitments and _SHARE.fullmatch(share)):
        yield f"-c commitmentShare={share}: must be a number from 0 to 1, and only with -c commitments=on"


def _of_fleet(options: StackOptions, context: Mapping[str, object]) -> Iterator[str]:
    if context.get("cluster"):
        yield (
            f"-c fleet={options.fleet}: takes all its clusters from the list clusters, because it looks for silent "
            "ones; leave -c cluster out, and name a stack to deploy only that"
        )
    if options.shadow:
        yield (
            f"-c fleet={options.fleet}: shadow mode compares each cluster by itself and shares nothing; leave "
            "-c fleet out"
        )


def _of_relay(options: StackOptions, region: str) -> Iterator[str]:
    if options.relay == "pod" and region.startswith("cn-") and not options.oidc_provider:
        yield (
            f"{region} has no EKS Pod Identity: leave -c relay=pod out, or give -c oidcProvider=ISSUER, the cluster's "
            "OIDC issuer, whose provider IAM must have"
        )
    digest, is_needed = options.webhook_digest, options.relay == "webhook" and not (options.apply or options.shadow)
    if (digest or is_needed) and not (is_needed and _DIGEST.fullmatch(digest)):
        where = "only with -c relay=webhook and -c clusterSide=printed"
        yield f"-c webhookDigest={digest}: must be a SHA-256 digest in hexadecimal, {where}"
