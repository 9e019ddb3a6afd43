"""Lifecycle: woken by node and pool events, and each minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics

from functions.lifecycle import cluster_metrics
from functions.lifecycle.reconcile import look
from functions.lifecycle.settings import LifecycleSettings
from shared import hints, metrics, runtime
from shared.settings import read

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from shared.metrics import Metric

logger = Logger(service="lifecycle")
written = Metrics(namespace=metrics.NAMESPACE, service="lifecycle")


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: LambdaContext) -> None:  # noqa: ARG001 (Lambda's signature)
    """Look at every claim, node, pool and class; compare with EC2 only on the schedule."""
    settings = read(LifecycleSettings, runtime.current().environ)
    hint = hints.parse(event, cluster=settings.cluster_name)
    swept = hint.detail_type == hints.SCHEDULED
    report = look(
        settings, logger=logger, everywhere=swept, classes=swept or hint.detail_type == hints.NODE_POOLS_CHANGED
    )
    values: dict[Metric, float] = {
        metrics.REGISTERED: report.registered,
        metrics.REPAIRED: report.repaired,
        metrics.LIFECYCLE_FAILURES: report.failures,
    }
    if report.initialized:
        values[metrics.TO_READY_SECONDS] = report.slowest_ready
    if report.figures is not None:
        values |= cluster_metrics.values(report.figures)
    metrics.emit(written, values)
