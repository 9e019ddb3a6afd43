"""Interruption: what EC2 and AWS Health say about machines, by the interruption queue, and a sweep each minute."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from botocore.exceptions import BotoCoreError, ClientError

from functions.interruption import messages
from functions.interruption.report import Report
from functions.interruption.responding import Responding
from functions.interruption.settings import InterruptionSettings
from shared import aws, host, queues
from shared.cluster.errors import ApiError
from shared.settings import read

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger(service="interruption")
metrics = Metrics(namespace="Tenon", service="interruption")


@logger.inject_lambda_context
@metrics.log_metrics
def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Follow a whole batch as one; answers which messages should come back."""
    settings = read(InterruptionSettings, host.current().environ)
    report = Report()
    batch = messages.read(event, dead_letter_queue_url=settings.dead_letter_queue_url, report=report, logger=logger)
    half = timedelta(milliseconds=context.get_remaining_time_in_millis() / 2)
    failed: frozenset[str] = frozenset()
    if batch.messages or batch.sweep:
        try:
            failed = Responding(
                settings, run=context.aws_request_id, until=host.current().now() + half, report=report, logger=logger
            ).respond(batch.messages, sweep=batch.sweep)
        except (ApiError, BotoCoreError, ClientError) as error:
            logger.warning("Events will be tried again", extra={"error": type(error).__name__, "why": str(error)})
            failed = frozenset(m.id for m in batch.messages)
    _measure(report, len(event["Records"]))
    return queues.come_back(aws.sqs(), event, failed)


def _measure(report: Report, received: int) -> None:
    metrics.add_metric(name="karpenter_interruption_received_messages_total", unit=MetricUnit.Count, value=received)
    for name in ("given_up", "moved", "replacements", "foreign", "malformed"):
        metrics.add_metric(name=f"tenon_interruption_{name}_total", unit=MetricUnit.Count, value=report.as_dict()[name])
    if any(report.as_dict().values()):
        logger.info("Followed events about machines", extra=report.as_dict())
