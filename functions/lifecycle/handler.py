"""Lifecycle function: invoked when Nodes or NodePools change, and by a schedule each minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics
from botocore.exceptions import BotoCoreError, ClientError

from functions.lifecycle import cluster_metrics, dead_letters
from functions.lifecycle.context import ReconcileContext, ReconcileScope
from functions.lifecycle.controller import LifecycleController
from functions.lifecycle.settings import LifecycleSettings
from shared.base import aws, hints, metrics, runtime, sweeps
from shared.base.settings import read
from shared.cluster.connect import connect
from shared.cluster.events import recorder
from shared.cluster.invocations import entry_point
from shared.launch.ec2_cloud_provider import EC2CloudProvider

if TYPE_CHECKING:
    from datetime import datetime

    from aws_lambda_powertools.utilities.typing import LambdaContext

    from shared.base.metrics import Metric

logger = Logger(service="lifecycle")
emf_metrics = Metrics(namespace=metrics.NAMESPACE, service="lifecycle")


@entry_point(logger)
def handle(event: dict[str, Any], context: LambdaContext) -> None:
    """Reconcile everything; compare with EC2 only on the schedule."""
    settings = read(LifecycleSettings, runtime.current().environ)
    hint = hints.parse(event, cluster=settings.cluster_name)
    is_scheduled = hint.detail_type == hints.SCHEDULED
    scope = ReconcileScope(
        compare_with_ec2=is_scheduled,
        resolve_node_classes=is_scheduled or hint.detail_type == hints.NODE_POOLS_CHANGED,
    )
    report = _controller(settings, run=context.aws_request_id).reconcile(scope)
    values: dict[Metric, float] = {
        metrics.REGISTERED: report.registered,
        metrics.PAUSED: report.paused,
        metrics.BREAKERS: report.breakers,
        metrics.HELD: report.held,
        metrics.GARBAGE_KEPT: report.kept_garbage,
        metrics.LIFECYCLE_FAILURES: report.failures,
    }
    if report.initialized:
        values[metrics.TO_READY_SECONDS] = report.slowest_ready
    if report.realised_price is not None:
        values[metrics.REALISED_PRICE] = report.realised_price
    if report.cluster_metrics is not None:
        values |= cluster_metrics.values(report.cluster_metrics)
    metrics.emit(emf_metrics, values)
    if is_scheduled:
        _after_sweep(settings, now=runtime.current().now())


def _controller(settings: LifecycleSettings, *, run: str) -> LifecycleController:
    process, client = runtime.current(), connect(settings)
    context = ReconcileContext(
        settings=settings,
        client=client,
        recorder=recorder(client),
        cloud_provider=EC2CloudProvider.of_cluster(settings.cluster_name),
        aws=aws,
        runtime=process,
        logger=logger,
        now=process.now(),
    )
    return LifecycleController(context=context, run=run)


def _after_sweep(settings: LifecycleSettings, *, now: datetime) -> None:
    dead_letters.check(settings, sqs=aws.sqs, logger=logger, now=now)
    if settings.sweeps_table and not now.minute % (sweeps.INTERVAL.total_seconds() // 60):
        try:
            sweeps.record(aws.dynamodb(), settings.sweeps_table, settings.cluster_name, now=now)
        except (BotoCoreError, ClientError) as error:  # the cluster's work is done; the fleet notices the missing row
            logger.warning("The sweep can't be recorded in the fleet's table", extra={"why": str(error)})
