"""Lifecycle: woken by node and pool events, and each minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from functions.lifecycle.settings import LifecycleSettings
from functions.lifecycle.sweep import Sweep
from shared import hints, host
from shared.settings import read

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger(service="lifecycle")
metrics = Metrics(namespace="Tenon", service="lifecycle")


@logger.inject_lambda_context
@metrics.log_metrics
def handle(event: dict[str, Any], context: LambdaContext) -> None:  # noqa: ARG001 (Lambda's signature)
    """Look at every claim, node, pool and class; compare with EC2 only on the schedule."""
    settings = read(LifecycleSettings, host.current().environ)
    hint = hints.parse(event, cluster=settings.cluster_name)
    swept = hint.about == hints.SCHEDULED
    report = Sweep(settings, logger=logger).look(
        everywhere=swept, classes=swept or hint.about == hints.NODE_POOLS_CHANGED
    )
    metrics.add_metric(name="karpenter_nodes_created_total", unit=MetricUnit.Count, value=report.registered)
    metrics.add_metric(name="tenon_nodes_repaired_total", unit=MetricUnit.Count, value=report.repaired)
    metrics.add_metric(name="tenon_lifecycle_failures_total", unit=MetricUnit.Count, value=report.failures)
