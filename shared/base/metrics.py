"""All metrics: functions emit them; the dashboard, the alarms and docs/reference/metrics.md are made from this list.

CloudWatch charges for every combination of a metric's dimensions, so metrics are few, and their dimensions only say
whose they are: the cluster and the function. Figures by NodePool, instance type or node are in the log lines; the
dashboard queries them with Logs Insights, which costs only per query. Names are Karpenter's where the meaning is the
same, those about node groups Cluster Autoscaler's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_lambda_powertools.metrics import MetricUnit, single_metric

from shared.base import runtime, settings
from shared.base.plurals import plural
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_lambda_powertools import Metrics

NAMESPACE = "Tenon"
SERVICE = "service"
"""The dimension that Powertools sets: the function's name."""
CLUSTER = "cluster"
"""The dimension that tells the clusters of an account and Region apart."""
FLEET = "fleet"
"""The dimension of what the clusters of a fleet share."""


class Metric(Struct):
    """A metric: the function that emits it, its unit, its CloudWatch statistic, and its description."""

    name: str
    function: str
    unit: MetricUnit
    statistic: str
    description: str


def _counter(name: str, function: str, description: str) -> Metric:
    return Metric(name, function, MetricUnit.Count, "Sum", description)


HINTS = _counter(
    "tenon_relay_hints_total", "provisioner", "Hints of the relay or the webhook about pods without a node."
)
UNSCHEDULABLE = Metric(
    "karpenter_scheduler_unschedulable_pods_count",
    "provisioner",
    MetricUnit.Count,
    "Maximum",
    "Pods that one scheduling decision could neither place on a node nor launch a node for.",
)
CREATED = _counter("karpenter_nodeclaims_created_total", "provisioner", "NodeClaims created for pending pods.")
LAUNCHED = _counter("tenon_nodeclaims_launched_total", "provisioner", "NodeClaims whose instance was launched.")
NOT_LAUNCHED = _counter("tenon_nodeclaims_not_launched_total", "provisioner", "NodeClaims whose launch EC2 refused.")
GROUP_NODES_ADDED = _counter(
    "cluster_autoscaler_scaled_up_nodes_total", "provisioner", "Nodes that node groups were asked for."
)
GROUP_NODES_REMOVED = _counter(
    "cluster_autoscaler_scaled_down_nodes_total", "nodegroups", "Nodes of node groups that were removed."
)
DECISION_SECONDS = Metric(
    "karpenter_scheduler_scheduling_duration_seconds",
    "provisioner",
    MetricUnit.Seconds,
    "p99",
    "Duration of one scheduling decision.",
)
TO_CLAIM_SECONDS = Metric(
    "tenon_pod_to_claim_seconds",
    "provisioner",
    MetricUnit.Seconds,
    "p99",
    "Time from a pod's Unschedulable condition to the creation of its NodeClaim; the longest of a reconcile.",
)
PLANNED_PRICE = Metric(
    "tenon_planned_usd_per_hour",
    "provisioner",
    MetricUnit.NoUnit,
    "Sum",
    "Planned price of the nodes that were launched, USD per hour.",
)
BOUGHT_PRICE = Metric(
    "tenon_bought_usd_per_hour",
    "provisioner",
    MetricUnit.NoUnit,
    "Sum",
    "Bought price of the nodes that were launched, USD per hour.",
)
REALISED_PRICE = Metric(
    "tenon_realised_usd_per_hour",
    "lifecycle",
    MetricUnit.NoUnit,
    "Maximum",
    "Realised price of the latest decision whose pods run, USD per hour of all nodes; once for each decision.",
)
NODES = Metric("tenon_nodes", "lifecycle", MetricUnit.Count, "Maximum", "Nodes that belong to a NodePool.")
COST = Metric(
    "tenon_cost_usd_per_hour",
    "lifecycle",
    MetricUnit.NoUnit,
    "Average",
    "Cost of these nodes, USD per hour, at the catalog's prices.",
)
CPU_UTILISATION = Metric(
    "tenon_cluster_utilization_cpu_percent",
    "lifecycle",
    MetricUnit.Percent,
    "Average",
    "Requested share of these nodes' allocatable CPU (Karpenter: karpenter_cluster_utilization_percent).",
)
MEMORY_UTILISATION = Metric(
    "tenon_cluster_utilization_memory_percent",
    "lifecycle",
    MetricUnit.Percent,
    "Average",
    "Requested share of these nodes' allocatable memory (Karpenter: karpenter_cluster_utilization_percent).",
)
PENDING = Metric(
    "tenon_pods_pending", "lifecycle", MetricUnit.Count, "Maximum", "Pods that the scheduler marked Unschedulable."
)
OLDEST_PENDING_SECONDS = Metric(
    "tenon_pods_pending_oldest_seconds",
    "lifecycle",
    MetricUnit.Seconds,
    "Maximum",
    "How long the oldest of these pods has been pending.",
)
TO_READY_SECONDS = Metric(
    "tenon_claim_to_ready_seconds",
    "lifecycle",
    MetricUnit.Seconds,
    "p99",
    "Time from a NodeClaim's creation to its Initialized condition; the longest of a reconcile.",
)
BREAKERS = _counter(
    "tenon_circuit_breakers_open",
    "lifecycle",
    "NodePools whose launches are paused because launches fail or machines never join, each minute.",
)
HELD = _counter(
    "tenon_hourly_limits_reached",
    "lifecycle",
    "NodePools whose launches or removals an hourly limit holds back, each minute.",
)
PAUSED = _counter("tenon_nodepools_paused", "lifecycle", "NodePools that are paused, each minute.")
REGISTERED = _counter("karpenter_nodes_created_total", "lifecycle", "Nodes that registered.")
GARBAGE_KEPT = _counter(
    "tenon_garbage_kept_total",
    "lifecycle",
    "Instances, nodes and NodeClaims that look like garbage and were kept, because one sweep gives up at most the "
    "larger of 5 and a tenth of the cluster's NodeClaims.",
)
LIFECYCLE_FAILURES = _counter("tenon_lifecycle_failures_total", "lifecycle", "Objects whose reconcile failed.")
DISRUPTED = _counter(
    "karpenter_nodeclaims_disrupted_total",
    "disruption",
    "NodeClaims disrupted because they were unhealthy, empty, expired, drifted, surplus or underutilized.",
)
REPAIRED = _counter("tenon_nodes_repaired_total", "disruption", "Unhealthy nodes that were replaced by node repair.")
SAVED = Metric(
    "tenon_disruption_savings_usd_per_hour",
    "disruption",
    MetricUnit.NoUnit,
    "Sum",
    "Savings of the disruption commands that were started, USD per hour.",
)
INTERRUPTIONS = _counter(
    "karpenter_interruption_received_messages_total", "interruption", "Messages received from the interruption queue."
)
INTERRUPTION_QUEUE_SECONDS = Metric(
    "karpenter_interruption_message_queue_duration_seconds",
    "interruption",
    MetricUnit.Seconds,
    "p99",
    "Time that a message of the interruption queue waited there; the longest of a batch.",
)
INTERRUPTED = _counter(
    "tenon_interruption_warned_total",
    "interruption",
    "Nodes drained because EC2 interrupts, stops or terminates their instance.",
)
PROACTIVELY_REPLACED = _counter(
    "tenon_interruption_moved_total",
    "interruption",
    "Nodes replaced before an interruption or maintenance that EC2 announced.",
)
INTERRUPTION_LAUNCHES = _counter(
    "tenon_interruption_replacements_total", "interruption", "NodeClaims launched for the pods of these nodes."
)
INTERRUPTION_MALFORMED = _counter(
    "tenon_interruption_malformed_total", "interruption", "Malformed messages in the interruption queue."
)
INTERRUPTION_CONTRADICTED = _counter(
    "tenon_interruption_contradicted_total",
    "interruption",
    "Dropped events about instances of the cluster, because EC2 contradicts them.",
)
CATALOG_STALE = _counter(
    "tenon_catalog_stale_parts",
    "catalog",
    "Parts of the catalog (instance types, prices) that could not be refreshed and were kept.",
)
CATALOG_NOT_FROM_AWS = Metric(
    "tenon_catalog_prices_not_from_aws",
    "catalog",
    MetricUnit.Count,
    "Maximum",
    "1 if on-demand prices are the last good copy or the built-in table.",
)
CATALOG_MALFORMED = _counter("tenon_catalog_malformed_events", "catalog", "Malformed events.")

ALL = tuple(value for value in globals().values() if isinstance(value, Metric))
"""Every metric, in the order of this file."""


UNWELL = "tenon_unwell"
"""The one metric of lean observability, of the cluster: written only when something is wrong, never as zero. The line
that has it says what (``reason``) and why."""
ALARMING = 3
"""The sum of five minutes at which the alarm goes off: three minutes or invocations, or one report of that weight."""
POD_WAITS_SECONDS = 300
"""A pod that is unschedulable for longer is alarming."""
REASONS: Mapping[Metric, tuple[float, str, str, str]] = {
    OLDEST_PENDING_SECONDS: (POD_WAITS_SECONDS, "pods-waiting", "the longest pending pod waits for {}", "second"),
    BREAKERS: (0, "launches-fail", "launches of {} are paused because they fail", "NodePool"),
    HELD: (0, "hourly-limits", "hourly limits hold back launches or removals of {}", "NodePool"),
    GARBAGE_KEPT: (0, "garbage-kept", "{} may be garbage, more than one sweep may give up", "object"),
}
"""Above which value of a metric something is wrong, what it is (an entry of docs/runbooks.md), and why, of which."""


def emit(emf_metrics: Metrics, values: Mapping[Metric, float]) -> None:
    """Emit these values now, without counts of zero: CloudWatch charges a metric for each hour that has data.

    With lean observability only what is wrong is emitted.
    """
    for metric, (most, reason, why, unit) in REASONS.items():
        if (value := values.get(metric, 0)) > most:
            report_unwell(reason, why.format(plural(round(value), unit)))
    environ = runtime.current().environ
    if environ.get(settings.variable("observability")) == "lean":
        return
    emitted = {metric: value for metric, value in values.items() if value or metric.statistic != "Sum"}
    for metric, value in emitted.items():
        emf_metrics.add_metric(name=metric.name, unit=metric.unit, value=value)
    if emitted:
        for dimension, setting in ((CLUSTER, "cluster_name"), (FLEET, "fleet")):
            if owner := environ.get(settings.variable(setting)):
                emf_metrics.add_dimension(name=dimension, value=owner)
                break
        emf_metrics.flush_metrics()


def report_unwell(reason: str, why: str, *, weight: int = 1, cluster: str = "") -> None:
    """Say that something is wrong with Tenon itself; ``reason`` is an entry of docs/runbooks.md.

    In a fleet the metric is written for the fleet, whose alarm reads it, and for the cluster, so that a graph of the
    metric says which one it is. ``cluster`` is needed where a function of the fleet reports about one of its clusters.
    """
    environ = runtime.current().environ
    fleet = environ.get(settings.variable("fleet"), "")
    cluster = cluster or environ.get(settings.variable("cluster_name"), "")
    owners = {FLEET: fleet, CLUSTER: cluster}
    for dimension, owner in owners.items():
        if not owner:
            continue
        with single_metric(name=UNWELL, unit=MetricUnit.Count, value=weight, namespace=NAMESPACE) as metric:
            metric.add_dimension(name=dimension, value=owner)
            if dimension == CLUSTER and fleet:
                continue  # the fleet's line has said why
            for key, value in {"reason": reason, "why": why, **({CLUSTER: cluster} if fleet else {})}.items():
                metric.add_metadata(key=key, value=value)
