"""Every metric that ``tenon export`` has: its name, type, labels, source and meaning.

The exposition, the Grafana dashboard, the alerting rules and docs/metrics.md are made from this list, so none of them
can name a metric that doesn't exist. Names and labels are Karpenter's where the meaning is the same (Karpenter's
metrics reference, https://karpenter.sh/docs/reference/metrics/); all others begin with ``tenon_``.
"""

from __future__ import annotations

from typing import Literal

from shared.api import labels as names
from shared.base import metrics
from shared.base.struct import Struct

Kind = Literal["gauge", "counter", "summary"]
CLUSTER, CATALOG, CLOUDWATCH, EXPORT = "cluster", "catalog", "cloudwatch", "export"
"""The sources: the Kubernetes API, the stored catalog of instance types, CloudWatch, and the process itself."""


class Family(Struct, kw_only=True):
    """A metric. ``labels`` may be missing from a sample where the object doesn't have them.

    ``running``: counted from read to read, so that ``--once`` doesn't have it.
    """

    name: str
    kind: Kind
    source: str
    labels: tuple[str, ...] = ()
    description: str
    running: bool = False


class CloudWatchFamily(Struct, kw_only=True):
    """A metric of CloudWatch, and the family that it becomes."""

    metric: metrics.Metric
    family: Family


def label_name(key: str) -> str:
    """The label's name for a key of Kubernetes, as Karpenter writes it: ``instance_type``."""
    return key.rpartition("/")[2].lower().replace("-", "_")


def resource_type(resource: str) -> str:
    """The value of label resource_type, as Karpenter writes it: ``ephemeral_storage``, ``nvidia.com/gpu``."""
    return resource.lower().replace("-", "_")


NODE_LABEL_KEYS = tuple(sorted(names.WELL_KNOWN - {names.HOSTNAME}))
"""The keys of the nodes' labels that Karpenter's metrics of nodes have."""
_NODE = (*sorted(label_name(key) for key in NODE_LABEL_KEYS), "node_name", "managed")
_DISRUPTED = ("nodepool", "capacity_type", "reason", "consolidation_policy", "termination_mode")
_OFFERING = ("instance_type", "zone", "capacity_type")


def _gauge(name: str, description: str, *labels: str, source: str = CLUSTER) -> Family:
    return Family(name=name, kind="gauge", source=source, labels=labels, description=description)


def _counted(name: str, description: str, *labels: str) -> Family:
    """A counter of changes between two reads of the cluster."""
    return Family(name=name, kind="counter", source=CLUSTER, labels=labels, description=description, running=True)


def _durations(name: str, description: str, *labels: str) -> Family:
    """A summary without quantiles, of what ended between two reads of the cluster."""
    return Family(name=name, kind="summary", source=CLUSTER, labels=labels, description=description, running=True)


# --- nodes ---
NODES_ALLOCATABLE = _gauge("karpenter_nodes_allocatable", "Allocatable resources of nodes.", *_NODE, "resource_type")
NODES_POD_REQUESTS = _gauge(
    "karpenter_nodes_total_pod_requests",
    "Resources that the pods on nodes request, DaemonSets' pods included.",
    *_NODE,
    "resource_type",
)
NODES_DAEMON_REQUESTS = _gauge(
    "karpenter_nodes_total_daemon_requests",
    "Resources that DaemonSets' pods on nodes request.",
    *_NODE,
    "resource_type",
)
NODES_OVERHEAD = _gauge(
    "karpenter_nodes_system_overhead",
    "Capacity of nodes that is not allocatable.",
    *_NODE,
    "resource_type",
)
NODES_LIFETIME = _gauge("karpenter_nodes_current_lifetime_seconds", "Age of nodes.", *_NODE)
NODE_COUNT = _gauge("karpenter_cluster_state_node_count", "Nodes of the cluster, whoever launched them.")
UTILIZATION = _gauge(
    "karpenter_cluster_utilization_percent",
    "Requested share of all nodes' allocatable resources.",
    "resource_type",
)
NODES = _gauge(
    "tenon_nodes",
    "Nodes, and NodeClaims without a node yet, by state as in `tenon nodes`. Nodes without a NodePool have no label "
    "nodepool.",
    "nodepool",
    *_OFFERING,
    "state",
)

# --- NodePools and node classes ---
POOL_USAGE = _gauge(
    "karpenter_nodepools_usage", "Capacity of the NodePool's nodes, by its status.", "nodepool", "resource_type"
)
POOL_LIMIT = _gauge("karpenter_nodepools_limit", "The NodePool's limits.", "nodepool", "resource_type")
POOL_ALLOWED = _gauge(
    "karpenter_nodepools_allowed_disruptions",
    "How many more nodes of the NodePool its disruption budgets allow to disrupt now; 0 while it is paused.",
    "nodepool",
    "reason",
)
POOL_CONDITIONS = _gauge(
    "operator_nodepool_status_condition_count",
    "1 for each condition of a NodePool.",
    "name",
    "type",
    "status",
    "reason",
)
CLASS_CONDITIONS = _gauge(
    "operator_ec2nodeclass_status_condition_count",
    "1 for each condition of an EC2NodeClass.",
    "name",
    "type",
    "status",
    "reason",
)
CLUSTER_PAUSED = _gauge("tenon_cluster_paused", "1 while the cluster is paused.")
POOL_PAUSED = _gauge("tenon_nodepool_paused", "1 while the NodePool or the cluster is paused.", "nodepool")
POOL_BREAKER = _gauge(
    "tenon_nodepool_circuit_breaker_open",
    "1 while launches of the NodePool are paused because launches fail or machines never join.",
    "nodepool",
)
INVALID = _gauge("tenon_invalid_objects", "Objects that can't be used.", "kind")

# --- NodeClaims and disruption ---
CLAIMS_CREATED = _counted("karpenter_nodeclaims_created_total", "NodeClaims created.", "nodepool", "reason")
CLAIMS_TERMINATED = _counted(
    "karpenter_nodeclaims_terminated_total", "NodeClaims terminated.", "nodepool", "capacity_type", "zone"
)
CLAIMS_DISRUPTED = _counted(
    "karpenter_nodeclaims_disrupted_total",
    "NodeClaims that a disruption command removes.",
    *_DISRUPTED,
)
PODS_DISRUPTED = _counted(
    "karpenter_pods_disruption_initiated_total",
    "Pods that have to move because a disruption command removes their NodeClaim.",
    *_DISRUPTED,
)
NODES_CREATED = _counted("karpenter_nodes_created_total", "Nodes of NodePools that joined the cluster.", "nodepool")
NODES_TERMINATED = _counted("karpenter_nodes_terminated_total", "Nodes of NodePools that left it.", "nodepool")
DRAINED = _counted("karpenter_nodes_drained_total", "Nodes whose pods have all moved (condition Drained).", "nodepool")
CLAIM_TERMINATION = _durations(
    "karpenter_nodeclaims_termination_duration_seconds",
    "Time from a NodeClaim's deletion until it was gone.",
    "nodepool",
)
NODE_TERMINATION = _durations(
    "karpenter_nodes_termination_duration_seconds",
    "Time from the deletion of a node, or of its NodeClaim, until it was gone.",
    "nodepool",
)
NODE_LIFETIME = _durations(
    "karpenter_nodes_lifetime_duration_seconds", "Time from a node's creation until it was gone.", "nodepool"
)
REBOOTS = _counted(
    "karpenter_nodes_reboots_total",
    "Reboots of nodes in place by result: succeeded, provider_error (not called), recovery_timeout (not back in time) "
    "or invalid_request.",
    "result",
)
REBOOT_DURATION = _durations(
    "karpenter_nodes_reboot_duration_seconds", "Time from the request of a reboot in place to its end.", "result"
)
REBOOT_RECOVERY = _durations(
    "karpenter_nodes_reboot_recovery_duration_seconds",
    "Time from the call of a reboot in place until the node is back.",
)
DECISIONS = _counted(
    "karpenter_voluntary_disruption_decisions_total",
    "Disruption commands: delete, replace where the nodes get replacements, terminate-first, or reboot.",
    "decision",
    "reason",
)
TERMINATE_FIRST_DECISIONS = _counted(
    "karpenter_voluntary_disruption_terminate_first_decisions_total",
    "Nodes that went before their replacements came, because none could be staged.",
    "nodepool",
    "reason",
    "terminate_first_reason",
)
ELIGIBLE = _gauge(
    "karpenter_voluntary_disruption_eligible_nodes",
    "Nodes whose NodeClaim has the condition Empty, Drifted or Consolidatable (underutilized), and that no command "
    "removes yet; budgets are not considered.",
    "reason",
)

# --- pods ---
PODS_STATE = _gauge(
    "karpenter_pods_state",
    "1 for each pod that hasn't ended; left out with --no-pods.",
    "name", "namespace", "owner", "node", "nodepool", "zone", "arch", "capacity_type", "instance_type", "phase",
)  # fmt: skip
PODS_STARTUP = Family(
    name="karpenter_pods_startup_duration_seconds",
    kind="summary",
    source=CLUSTER,
    labels=("quantile",),
    description="Time from the creation of pods until they were ready; quantiles of the last ten minutes.",
    running=True,
)
PODS_BOUND = _durations(
    "karpenter_pods_bound_duration_seconds", "Time from the creation of pods until they were bound to a node."
)
PODS = _gauge(
    "tenon_pods", "Pods that haven't ended; those without a node have no label nodepool.", "nodepool", "phase"
)
PENDING = _gauge(metrics.PENDING.name, metrics.PENDING.description)
OLDEST_PENDING = _gauge(metrics.OLDEST_PENDING_SECONDS.name, metrics.OLDEST_PENDING_SECONDS.description)

# --- prices ---
COST = _gauge(
    metrics.COST.name, "Price of nodes, USD per hour, at the catalog's prices.", "nodepool", *_OFFERING, source=CATALOG
)
NAMESPACE_COST = _gauge(
    "tenon_namespace_cost_usd_per_hour",
    "Price of nodes, split by what pods request, in the ratio of OpenCost's base prices for CPU, memory and GPUs. "
    "share is pods (of a namespace; with --cost-label KEY, label is their value of that label), daemons (of DaemonSets "
    "and static pods) or idle (what nobody requests); the sum is the price of the nodes.",
    "share", "namespace", "label",
    source=CATALOG,
)  # fmt: skip
UNPRICED = _gauge("tenon_nodes_without_price", "Nodes whose price the catalog doesn't know.", source=CATALOG)
OFFERING_PRICE = _gauge(
    "karpenter_cloudprovider_instance_type_offering_price_estimate",
    "USD per hour of an instance type; of those that nodes use, with --offerings of all.",
    *_OFFERING,
    source=CATALOG,
)
TYPE_CPU = _gauge(
    "karpenter_cloudprovider_instance_type_cpu_cores", "vCPUs of these instance types.", "instance_type", source=CATALOG
)
TYPE_MEMORY = _gauge(
    "karpenter_cloudprovider_instance_type_memory_bytes",
    "Memory of these instance types, in bytes.",
    "instance_type",
    source=CATALOG,
)

# --- CloudWatch ---
_COUNTED_BY_FUNCTIONS = (
    metrics.HINTS,
    metrics.LAUNCHED,
    metrics.NOT_LAUNCHED,
    metrics.GROUP_NODES_ADDED,
    metrics.GROUP_NODES_REMOVED,
    metrics.PLANNED_PRICE,
    metrics.BOUGHT_PRICE,
    metrics.REPAIRED,
    metrics.GARBAGE_KEPT,
    metrics.LIFECYCLE_FAILURES,
    metrics.SAVED,
    metrics.INTERRUPTIONS,
    metrics.INTERRUPTED,
    metrics.PROACTIVELY_REPLACED,
    metrics.INTERRUPTION_LAUNCHES,
    metrics.INTERRUPTION_MALFORMED,
    metrics.INTERRUPTION_CONTRADICTED,
    metrics.CATALOG_STALE,
    metrics.CATALOG_MALFORMED,
)
_TIMED = (
    metrics.DECISION_SECONDS,
    metrics.TO_CLAIM_SECONDS,
    metrics.TO_READY_SECONDS,
    metrics.INTERRUPTION_QUEUE_SECONDS,
)
_LATEST = (metrics.UNSCHEDULABLE, metrics.CATALOG_NOT_FROM_AWS)


def _of_cloudwatch(metric: metrics.Metric, kind: Kind) -> CloudWatchFamily:
    name = f"{metric.name.removesuffix('_total')}_total" if kind == "counter" else metric.name
    return CloudWatchFamily(
        metric=metric,
        family=Family(name=name, kind=kind, source=CLOUDWATCH, description=metric.description),
    )


FROM_CLOUDWATCH: tuple[CloudWatchFamily, ...] = (
    *(_of_cloudwatch(metric, "counter") for metric in _COUNTED_BY_FUNCTIONS),
    *(_of_cloudwatch(metric, "summary") for metric in _TIMED),
    *(_of_cloudwatch(metric, "gauge") for metric in _LATEST),
)
"""Those that only the functions know, with ``-c observability=full``."""
UNWELL = Family(
    name=f"{metrics.UNWELL}_total",
    kind="counter",
    source=CLOUDWATCH,
    description="What functions report to be wrong with Tenon, by weight; docs/runbooks.md#unwell.",
)
_BY_METRIC = {entry.metric.name: entry.family for entry in FROM_CLOUDWATCH}

# --- the process ---
BUILD = _gauge(
    "tenon_build_info", "1; labelled by Tenon's version and the cluster.", "version", "cluster", source=EXPORT
)
UP = _gauge(
    "tenon_export_up", "1 if the source's last read succeeded and its metrics are current.", "source", source=EXPORT
)
LAST_SUCCESS = _gauge(
    "tenon_export_last_success_timestamp_seconds",
    "When the source was last read, in Unix time; 0 if never.",
    "source",
    source=EXPORT,
)
AGE = _gauge("tenon_export_age_seconds", "Age of the source's metrics.", "source", source=EXPORT)
DURATION = _gauge("tenon_export_read_duration_seconds", "How long the last read took.", "source", source=EXPORT)
READS = Family(
    name="tenon_export_reads_total",
    kind="counter",
    source=EXPORT,
    labels=("source", "outcome"),
    description="Reads by outcome: ok, denied, unreachable, missing (not deployed) or failed.",
)
REQUESTED = Family(
    name="tenon_export_cloudwatch_metrics_requested_total",
    kind="counter",
    source=EXPORT,
    description="Metrics requested by GetMetricData, for which AWS charges.",
)

ALL: tuple[Family, ...] = (
    *(value for value in list(globals().values()) if isinstance(value, Family)),
    *(entry.family for entry in FROM_CLOUDWATCH),
)
"""Every family, in the order of this file; those of the functions' metrics last."""


def of_metric(metric: metrics.Metric) -> Family:
    """The family that a metric of CloudWatch becomes.

    Raises:
        KeyError: it is not exported, because the cluster says the same without charge.
    """
    return _BY_METRIC[metric.name]
