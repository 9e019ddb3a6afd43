"""Disruption: woken when a node is emptied, by its own delayed messages, and each minute."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics
from botocore.exceptions import BotoCoreError, ClientError

from functions.disruption.controller import Disruption
from functions.disruption.requeue import CONSOLIDATION
from functions.disruption.settings import DisruptionSettings
from shared import aws, hints, metrics, queues, runtime
from shared.cluster.errors import ApiError
from shared.cluster.lease import LeaseHeldError, LeaseLostError
from shared.settings import read

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger(service="disruption")
written = Metrics(namespace=metrics.NAMESPACE, service="disruption")


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, Any] | None:
    """One look for all messages of the batch, or for the schedule's event; the latter looks for savings too."""
    settings = read(DisruptionSettings, runtime.current().environ)
    if "Records" not in event:
        hints.parse(event, cluster=settings.cluster_name)
        _look(settings, context, everything=True)
        return None
    messages = queues.parse_batch(
        event,
        cluster=settings.cluster_name,
        sqs=aws.sqs(),
        dead_letter_queue_url=settings.dead_letter_queue_url,
        logger=logger,
    )
    everything = any(CONSOLIDATION in m.hint.keys for m in messages if m.hint.detail_type == hints.REQUEUE)
    if messages and not _look(settings, context, everything=everything):
        return queues.retry_response(aws.sqs(), event, [m.id for m in messages])
    return queues.partial_batch_response(())


def _look(settings: DisruptionSettings, context: LambdaContext, *, everything: bool) -> bool:
    """Look once; False when it has to be tried again."""
    until = runtime.current().now() + timedelta(milliseconds=context.get_remaining_time_in_millis() / 2)
    disruption = Disruption(settings, run=context.aws_request_id, until=until, logger=logger)
    try:
        report = disruption.look(everything=everything)
    except (ApiError, BotoCoreError, ClientError, LeaseHeldError, LeaseLostError) as error:
        logger.warning("Disruption will be tried again", extra={"error": type(error).__name__, "why": str(error)})
        return False
    metrics.emit(written, {metrics.DISRUPTED: report.removed, metrics.SAVED: report.saved})
    return True
