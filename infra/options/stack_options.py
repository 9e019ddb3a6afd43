"""The context keys (``-c key=value``) of a deployment, as one validated value.

A cluster is only known by its name: nothing is looked up during synthesis, so the template can be built anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from infra import function_sizes
from infra.options import shadow_pools
from shared.api import buffer_signals, labels
from shared.base import hints

if TYPE_CHECKING:
    from shared.api.buffer_signals import Event

Bundle = Literal["full", "source"]
Observability = Literal["lean", "full"]
PlannedPods = Literal["nominated", "off"]
Architecture = Literal["arm64", "amd64"]
Relay = Literal["function", "pod", "webhook"]
DEFAULT_BUS = "default"
DEFAULT_SHADOW_INTERVAL = 5
_SHADOW_INTERVALS = range(2, 31)
"""Minutes. A run takes up to two; after an hour without one nothing is counted."""

# https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateCluster.html
_CLUSTER = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}")


class OptionError(ValueError):
    """An invalid context value; the message names the key, the value and what is allowed."""


class NoClusterError(OptionError):
    """The context names no cluster."""


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """The options of one cluster's stack.

    ``fleet`` is the fleet whose stack has what its clusters share: the catalog, the alarm, the dashboard and the queue
    of undelivered events ("" for none).
    ``bundle`` "source" leaves the functions' code out (the local world runs it from the checkout). ``apply`` lets the
    stack apply its objects to the cluster: CustomResourceDefinitions (``kinds``; not where Karpenter's own stay;
    ``capacity_buffers``: with that of CapacityBuffers), RBAC and the relay where it is a pod.
    ``sweep_memory`` is that of the functions that mostly sweep, in MiB.
    ``relay`` is where the watch of the cluster runs: in a function with ``relay_memory`` MiB, or in pods, with
    ``relay_image`` or an image that is built during deployment, which needs Docker. "webhook": nothing watches the
    cluster, and an admission webhook announces new pods; ``webhook_digest`` is the SHA-256 digest of its secret path
    where the stack doesn't generate it, because users apply the cluster's objects. ``relay_architectures`` are those
    that the image is built for, ``relay_tolerations`` Kubernetes tolerations. ``oidc_provider`` is the host and path of
    the cluster's OIDC issuer: with it the relay gets its role by IRSA instead of EKS Pod Identity. ``node_role`` is an
    existing role for nodes instead of a new one, ``node_roles`` are other roles that node classes may use. ``subnets``
    and ``security_groups`` put the functions that call the cluster into a VPC, which a private cluster endpoint needs.
    ``reserve`` reserves concurrency for functions that run one at a time, which the quota of a new account doesn't
    allow. ``function_architecture`` is the processor of the functions, arm64 except where a Region's Lambda doesn't
    have it. ``alarm_topic`` is the ARN of an SNS topic that alarms notify; without it they only change their state.
    ``observability`` "lean" has one alarm and the metric that it needs, "full" alarms for each symptom, all metrics and
    a dashboard. ``tracing`` sends a trace of each invocation to X-Ray. ``kms_keys`` are the ARNs of customer managed
    keys that encrypt volumes of nodes. ``planned_pods`` "nominated" lets the lifecycle function nominate pods for the
    nodes planned for them. ``buffer_queues`` and ``buffer_alarms`` are the names of SQS queues and CloudWatch alarms
    that CapacityBuffers may follow, and ``buffer_events`` events on the bus ``buffer_event_bus``.
    ``shadow`` deploys only what compares, without changing anything, what Tenon would do with what is done: every
    ``shadow_interval`` minutes, with the NodePools and node classes ``shadow_pools`` or, without them, the cluster's.
    ``standby`` gives the rights to stop and start instances, which NodePools' standby nodes need. ``node_groups`` gives
    the rights to scale the cluster's node groups. ``commitments`` lets the catalog function read Savings Plans and
    Reserved Instances, which decisions then count; ``commitment_share`` is the cluster's part of them, 0 to 1 as text
    ("": by its part of the running instances).
    """

    cluster: str
    fleet: str = ""
    bundle: Bundle = "full"
    apply: bool = True
    kinds: bool = True
    capacity_buffers: bool = True
    relay: Relay = "function"
    relay_memory: int = function_sizes.SIZES[function_sizes.RELAY].memory
    sweep_memory: int = function_sizes.HALF_VCPU
    relay_image: str = ""
    relay_architectures: tuple[Architecture, ...] = ("arm64", "amd64")
    relay_tolerations: tuple[Mapping[str, str], ...] = ()
    webhook_digest: str = ""
    oidc_provider: str = ""
    function_architecture: Architecture = "arm64"
    node_role: str = ""
    node_roles: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    reserve: bool = False
    kms_keys: tuple[str, ...] = ()
    alarm_topic: str = ""
    observability: Observability = "lean"
    tracing: bool = False
    planned_pods: PlannedPods = "nominated"
    standby: bool = False
    node_groups: bool = False
    commitments: bool = False
    commitment_share: str = ""
    buffer_queues: tuple[str, ...] = ()
    buffer_alarms: tuple[str, ...] = ()
    buffer_events: tuple[Event, ...] = ()
    buffer_event_bus: str = DEFAULT_BUS
    shadow: bool = False
    shadow_interval: int = DEFAULT_SHADOW_INTERVAL
    shadow_pools: tuple[Mapping[str, Any], ...] = ()

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


def _names(context: Mapping[str, object], key: str) -> tuple[str, ...]:
    value = context.get(key, ())
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, Sequence) and all(isinstance(part, str) for part in value):
        return tuple(str(part) for part in value)
    raise OptionError(f"-c {key}={value}: must be names separated by commas")


def _one_of(context: Mapping[str, object], key: str, default: str, *alternatives: str) -> str:
    value = str(context.get(key, default)) or default
    if value.lower() not in {default, *alternatives}:
        raise OptionError(f"-c {key}={value}: must be {' or '.join((default, *alternatives))}")
    return value.lower()


_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def tolerations(values: Sequence[str], *, option: str) -> tuple[dict[str, str], ...]:
    """The tolerations of taints as kubectl writes them (``KEY[=VALUE][:EFFECT]``); ``*`` tolerates every taint.

    Raises:
        OptionError: a value has no key, or an unknown effect.
    """
    parsed: list[dict[str, str]] = []
    for text in values:
        taint, colon, effect = text.partition(":")
        key, equals, value = taint.partition("=")
        if not key or (colon and effect not in _EFFECTS):
            raise OptionError(
                f"{option}={text}: must be taints KEY[=VALUE][:EFFECT] separated by commas, with an effect of "
                f"{', '.join(_EFFECTS)}; or *"
            )
        matched = {"operator": "Exists"} if not equals else {"operator": "Equal", "value": value}
        parsed.append({**({} if key == "*" else {"key": key}), **matched, **({"effect": effect} if effect else {})})
    return tuple(parsed)


_OIDC_PROVIDER = re.compile(r"[a-z0-9.-]+\.[a-z0-9.-]+(/[\w.-]+)*")


def oidc_provider(issuer: str, *, option: str) -> str:
    """The host and path of an OIDC issuer, as IAM names its provider; "" for none.

    Raises:
        OptionError: it isn't an issuer, such as an ARN.
    """
    provider = issuer.removeprefix("https://").rstrip("/")
    if provider and not _OIDC_PROVIDER.fullmatch(provider):
        raise OptionError(
            f"{option}={issuer}: must be the cluster's OIDC issuer, such as oidc.eks.REGION.amazonaws.com/id/ID"
        )
    return provider


_POD_ONLY = ("relayImage", "relayArchitecture", "relayTolerations", "oidcProvider")
_RELAYS: Mapping[str, Relay] = {"function": "function", "pod": "pod", "webhook": "webhook"}


def _relay(context: Mapping[str, object]) -> Relay:
    relay = _one_of(context, "relay", *_RELAYS)
    unused = [key for key in _POD_ONLY if context.get(key)]
    if relay != "pod" and unused:
        raise OptionError(f"-c {unused[0]}: is for the relay as a pod; give -c relay=pod, or leave it out")
    return _RELAYS[relay]


def _webhook_digest(context: Mapping[str, object], *, is_needed: bool) -> str:
    digest = str(context.get("webhookDigest", ""))
    if (digest or is_needed) and not (is_needed and re.fullmatch("[0-9a-f]{64}", digest)):
        where = "only with -c relay=webhook and -c clusterSide=printed"
        raise OptionError(f"-c webhookDigest={digest}: must be a SHA-256 digest in hexadecimal, {where}")
    return digest


def _memory(context: Mapping[str, object], key: str, default: int, *, least: int) -> int:
    text = str(context.get(key, "")) or str(default)
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= function_sizes.MOST_MEMORY:
        raise OptionError(f"-c {key}={text}: must be MiB from {least} to {function_sizes.MOST_MEMORY}")
    return int(text)


def _architectures(context: Mapping[str, object]) -> tuple[Architecture, ...]:
    match _one_of(context, "relayArchitecture", "both", "arm64", "amd64"):
        case "arm64":
            return ("arm64",)
        case "amd64":
            return ("amd64",)
    return ("arm64", "amd64")


_KMS_KEY = re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[\w-]+")


def _kms_keys(context: Mapping[str, object]) -> tuple[str, ...]:
    keys = _names(context, "kmsKeys")
    for key in keys:
        if not _KMS_KEY.fullmatch(key):
            raise OptionError(f"-c kmsKeys={key}: must be ARNs of KMS keys (not aliases) separated by commas")
    return keys


_TOPIC = re.compile(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[\w-]{1,256}(\.fifo)?")


def _topic(context: Mapping[str, object]) -> str:
    topic = str(context.get("alarmTopic", ""))
    if topic and not _TOPIC.fullmatch(topic):
        raise OptionError(f"-c alarmTopic={topic}: must be the ARN of an SNS topic")
    return topic


_BUS = re.compile(r"[/.\-_A-Za-z0-9]{1,256}")
_SOURCE = re.compile(r"[^*?]{1,256}")
_DETAIL_TYPE = re.compile(r".{1,128}")


def _sources(context: Mapping[str, object], key: str, annotation: str) -> tuple[str, ...]:
    """The names of queues or alarms, as the annotation takes them."""
    names = tuple(dict.fromkeys(_names(context, key)))
    for name in names:
        # A wildcard in an ARN would allow others.
        problem = next(buffer_signals.problems({annotation: name}), "")
        if problem or {"*", "?"} & set(name):
            raise OptionError(f"-c {key}={name}: must be names separated by commas, without * and ?; {problem}")
    return names


def _events(context: Mapping[str, object]) -> tuple[Event, ...]:
    events: list[Event] = []
    for text in _names(context, "bufferEvents"):
        event = buffer_signals.event(text)
        if event is None or not _SOURCE.fullmatch(event.source) or not _DETAIL_TYPE.fullmatch(event.detail_type):
            raise OptionError(f"-c bufferEvents={text}: must be SOURCE/DETAIL-TYPE separated by commas")
        if event.source == hints.SCHEDULE or event == buffer_signals.ALARM_CHANGED:
            raise OptionError(f"-c bufferEvents={text}: is a schedule or an alarm; name alarms in bufferAlarms")
        events.append(event)
    return tuple(dict.fromkeys(events))


def _bus(context: Mapping[str, object]) -> str:
    bus = str(context.get("bufferEventBus", "")) or DEFAULT_BUS
    if not _BUS.fullmatch(bus):
        raise OptionError(f"-c bufferEventBus={bus}: must be the name of an event bus of this account and Region")
    return bus


_SHARE = re.compile(r"0|1(\.0+)?|0?\.\d{1,6}")


def _commitments(context: Mapping[str, object], *, shadow: bool) -> dict[str, Any]:
    commitments, text = _one_of(context, "commitments", "off", "on") == "on", str(context.get("commitmentShare", ""))
    if commitments and shadow:
        raise OptionError("-c commitments=on: not together with -c mode=shadow, which compares list prices")
    if text and not (commitments and _SHARE.fullmatch(text)):
        raise OptionError(f"-c commitmentShare={text}: must be a number from 0 to 1, and only with -c commitments=on")
    return {"commitments": commitments, "commitment_share": text}


def _shadow_interval(context: Mapping[str, object]) -> int:
    text = str(context.get("shadowInterval", "")) or str(DEFAULT_SHADOW_INTERVAL)
    if not text.isdecimal() or int(text) not in _SHADOW_INTERVALS:
        allowed = f"{_SHADOW_INTERVALS.start} to {_SHADOW_INTERVALS.stop - 1}"
        raise OptionError(f"-c shadowInterval={text}: must be minutes, {allowed}")
    return int(text)


def _shadow_pools(context: Mapping[str, object]) -> tuple[Mapping[str, Any], ...]:
    """The NodePools and node classes of a file."""
    path = str(context.get("shadowPools", ""))
    try:
        return shadow_pools.read(Path(path)) if path else ()
    except shadow_pools.PoolsError as error:
        raise OptionError(f"-c shadowPools={path}: {error}") from error


def clusters(context: Mapping[str, object]) -> tuple[str, ...]:
    """The clusters to build stacks for: ``cluster`` if it is given, else the list ``clusters``.

    Raises:
        NoClusterError: no cluster is given.
        OptionError: EKS doesn't allow a name.
    """
    names = _names(context, "cluster") or _names(context, "clusters")
    if not names:
        raise NoClusterError("no cluster: give -c cluster=NAME")
    return tuple(cluster_name(name, option="-c cluster") for name in names)


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
        OptionError: a value is invalid.
    """
    bundle = _one_of(context, "bundle", "full", "source")
    side = _one_of(context, "clusterSide", "applied", "printed")
    kinds = _one_of(context, "kinds", "applied", "kept")
    capacity_buffers = _one_of(context, "capacityBuffers", "applied", "kept")
    reserve = _one_of(context, "reservedConcurrency", "false", "true")
    function_architecture = _one_of(context, "functionArchitecture", "arm64", "amd64")
    tracing = _one_of(context, "tracing", "off", "active")
    planned_pods = _one_of(context, "plannedPods", "nominated", "off")
    standby = _one_of(context, "standby", "off", "on")
    node_groups = _one_of(context, "nodeGroups", "off", "on")
    shadow = _one_of(context, "mode", "active", "shadow") == "shadow"
    subnets, security_groups = _names(context, "subnets"), _names(context, "securityGroups")
    if bool(subnets) != bool(security_groups):
        raise OptionError("-c subnets and -c securityGroups: give both to run the functions in a VPC")
    relay = _relay(context)
    relay_memory = function_sizes.SIZES[function_sizes.RELAY].memory
    provider = oidc_provider(str(context.get("oidcProvider", "")), option="-c oidcProvider")
    if relay == "pod" and region and region.startswith("cn-") and not provider:
        raise OptionError(
            f"{region} has no EKS Pod Identity: leave -c relay=pod out, or give -c oidcProvider=ISSUER, the cluster's "
            "OIDC issuer, whose provider IAM must have"
        )
    return StackOptions(
        cluster=cluster,
        fleet=str(context.get("fleet", "")),
        bundle="source" if bundle == "source" else "full",
        apply=side == "applied",
        kinds=kinds == "applied",
        capacity_buffers=capacity_buffers == "applied",
        relay=relay,
        relay_memory=_memory(context, "relayMemory", relay_memory, least=function_sizes.LEAST_MEMORY),
        sweep_memory=_memory(context, "sweepMemory", function_sizes.HALF_VCPU, least=function_sizes.HALF_VCPU),
        relay_image=str(context.get("relayImage", "")),
        relay_architectures=_architectures(context),
        relay_tolerations=tolerations(_names(context, "relayTolerations"), option="-c relayTolerations"),
        webhook_digest=_webhook_digest(context, is_needed=relay == "webhook" and side == "printed" and not shadow),
        oidc_provider=provider,
        function_architecture="amd64" if function_architecture == "amd64" else "arm64",
        node_role=str(context.get("nodeRole", "")),
        node_roles=_names(context, "nodeRoles"),
        subnets=subnets,
        security_groups=security_groups,
        reserve=reserve == "true",
        kms_keys=_kms_keys(context),
        alarm_topic=_topic(context),
        observability="full" if _one_of(context, "observability", "lean", "full") == "full" else "lean",
        tracing=tracing == "active",
        planned_pods="nominated" if planned_pods == "nominated" else "off",
        buffer_queues=_sources(context, "bufferQueues", labels.SQS_QUEUE),
        buffer_alarms=_sources(context, "bufferAlarms", labels.CLOUDWATCH_ALARM),
        buffer_events=_events(context),
        buffer_event_bus=_bus(context),
        standby=standby == "on",
        node_groups=node_groups == "on",
        **_commitments(context, shadow=shadow),
        shadow=shadow,
        shadow_interval=_shadow_interval(context),
        shadow_pools=_shadow_pools(context),
    )
