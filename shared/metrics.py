"""Every metric that Tenon writes, in one list: functions emit by it, the dashboard, alarms and docs/metrics.md read it.

A custom metric costs money each month for every combination of its dimensions, so there are few, and none has a
dimension: what is asked for by pool, instance type or node is in the log lines, which the dashboard's Logs Insights
widgets read and which cost something only when somebody looks. Names are Karpenter's where the meaning is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aws_lambda_powertools.metrics import MetricUnit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_lambda_powertools import Metrics

NAMESPACE = "Tenon"
SERVICE = "service"
"""The one dimension, which Powertools sets: the function's name."""


@dataclass(frozen=True)
class Metric:
    """One metric: which function writes it, in which unit, how it is summed up over time, and what it means."""

    name: str
    function: str
    unit: MetricUnit
    statistic: str
    description: str


def _counted(name: str, function: str, description: str) -> Metric:
    return Metric(name, function, MetricUnit.Count, "Sum", description)


UNSCHEDULABLE = Metric(
    "karpenter_scheduler_unschedulable_pods_count",
    "provisioner",
    MetricUnit.Count,
    "Maximum",
    "Pods for which a look found no place and no machine to buy.",
)
CREATED = _counted("karpenter_nodeclaims_created_total", "provisioner", "NodeClaims written for pending pods.")
LAUNCHED = _counted("tenon_nodeclaims_launched_total", "provisioner", "NodeClaims that got their instance.")
NOT_LAUNCHED = _counted(
    "tenon_nodeclaims_not_launched_total", "provisioner", "NodeClaims that EC2 gave no instance for."
)
DECISION_SECONDS = Metric(
    "karpenter_scheduler_scheduling_duration_seconds",
    "provisioner",
    MetricUnit.Seconds,
    "p99",
    "How long one decision of the scheduling core took.",
)
TO_CLAIM_SECONDS = Metric(
    "tenon_pod_to_claim_seconds",
    "provisioner",
    MetricUnit.Seconds,
    "p99",
    "From a pod's Unschedulable condition to the NodeClaim that was written for it; the slowest of a look.",
)
NODES = Metric("tenon_nodes", "lifecycle", MetricUnit.Count, "Maximum", "Nodes of the cluster's NodePools.")
COST = Metric(
    "tenon_cost_usd_per_hour",
    "lifecycle",
    MetricUnit.NoUnit,
    "Average",
    "What these nodes cost now, USD per hour, at the catalog's prices.",
)
CPU_UTILISATION = Metric(
    "tenon_cluster_utilization_cpu_percent",
    "lifecycle",
    MetricUnit.Percent,
    "Average",
    "Requested cpu of what these nodes can allocate (Karpenter: karpenter_cluster_utilization_percent).",
)
MEMORY_UTILISATION = Metric(
    "tenon_cluster_utilization_memory_percent",
    "lifecycle",
    MetricUnit.Percent,
    "Average",
    "Requested memory of what these nodes can allocate (Karpenter: karpenter_cluster_utilization_percent).",
)
PENDING = Metric(
    "tenon_pods_pending", "lifecycle", MetricUnit.Count, "Maximum", "Pods that the scheduler calls Unschedulable."
)
OLDEST_PENDING_SECONDS = Metric(
    "tenon_pods_pending_oldest_seconds",
    "lifecycle",
    MetricUnit.Seconds,
    "Maximum",
    "For how long the longest of them has been waiting.",
)
TO_READY_SECONDS = Metric(
    "tenon_claim_to_ready_seconds",
    "lifecycle",
    MetricUnit.Seconds,
    "p99",
    "From a NodeClaim's creation to Initialized; the slowest of a look.",
)
REGISTERED = _counted("karpenter_nodes_created_total", "lifecycle", "Nodes that registered.")
REPAIRED = _counted("tenon_nodes_repaired_total", "lifecycle", "Unhealthy nodes that were given up.")
LIFECYCLE_FAILURES = _counted("tenon_lifecycle_failures_total", "lifecycle", "Objects that a look could not deal with.")
DISRUPTED = _counted(
    "karpenter_nodeclaims_disrupted_total", "disruption", "NodeClaims given up by expiry, drift, emptiness or savings."
)
SAVED = Metric(
    "tenon_disruption_savings_usd_per_hour",
    "disruption",
    MetricUnit.NoUnit,
    "Sum",
    "What the begun actions save, USD per hour.",
)
INTERRUPTIONS = _counted(
    "karpenter_interruption_received_messages_total", "interruption", "Messages taken from the interruption queue."
)
WARNED = _counted("tenon_interruption_warned_total", "interruption", "Own machines that EC2 takes back or stops.")
MOVED = _counted("tenon_interruption_moved_total", "interruption", "Own machines given up ahead of what EC2 announced.")
INTERRUPTED_LAUNCHES = _counted(
    "tenon_interruption_replacements_total", "interruption", "NodeClaims launched for the pods of those machines."
)
INTERRUPTION_MALFORMED = _counted(
    "tenon_interruption_malformed_total", "interruption", "Messages about machines that nobody could read."
)
INTERRUPTION_CONTRADICTED = _counted(
    "tenon_interruption_contradicted_total", "interruption", "Events about own machines that EC2 says are not so."
)
CATALOG_STALE = _counted(
    "tenon_catalog_stale_parts", "catalog", "Parts of the catalog (types, prices) that were kept from before."
)
CATALOG_NOT_FROM_AWS = Metric(
    "tenon_catalog_prices_not_from_aws",
    "catalog",
    MetricUnit.Count,
    "Maximum",
    "1 where on-demand prices are the last good copy or the table in the code.",
)
CATALOG_MALFORMED = _counted("tenon_catalog_malformed_events", "catalog", "Events that meant nothing.")

ALL = tuple(value for value in globals().values() if isinstance(value, Metric))
"""Every metric, in the order of this file."""


def emit(metrics: Metrics, values: Mapping[Metric, float]) -> None:
    """Write these values once, now; but no count of nothing: a metric is paid for by the hours that have it."""
    told = {metric: value for metric, value in values.items() if value or metric.statistic != "Sum"}
    for metric, value in told.items():
        metrics.add_metric(name=metric.name, unit=metric.unit, value=value)
    if told:
        metrics.flush_metrics()
