"""Interruption: what EC2 and AWS Health say about machines, by the interruption queue, and a sweep each minute."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics
from botocore.exceptions import BotoCoreError, ClientError

from functions.interruption import batch
from functions.interruption.controller import Responding
from functions.interruption.report import Report
from functions.interruption.settings import InterruptionSettings
from shared import aws, metrics, queues, runtime
from shared.cluster.errors import ApiError
from shared.settings import read

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from shared.metrics import Metric

logger = Logger(service="interruption")
written = Metrics(namespace=metrics.NAMESPACE, service="interruption")


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Follow a whole batch as one; answers which messages should come back."""
    settings = read(InterruptionSettings, runtime.current().environ)
    report: Report = Report()
    received = batch.read(event, dead_letter_queue_url=settings.dead_letter_queue_url, report=report, logger=logger)
    half = timedelta(milliseconds=context.get_remaining_time_in_millis() / 2)
    failed: frozenset[str] = frozenset()
    if received.messages or received.sweep:
        try:
            failed = Responding(
                settings, run=context.aws_request_id, until=runtime.current().now() + half, report=report, logger=logger
            ).respond(received.messages, sweep=received.sweep)
        except (ApiError, BotoCoreError, ClientError) as error:
            logger.warning("Events will be tried again", extra={"error": type(error).__name__, "why": str(error)})
            failed = frozenset(m.id for m in received.messages)
    _measure(report, len(received.messages) + report["malformed"])
    return queues.retry_response(aws.sqs(), event, failed)


def _measure(report: Report, received: int) -> None:
    values: dict[Metric, float] = {
        metrics.INTERRUPTIONS: received,
        metrics.WARNED: report["given_up"],
        metrics.MOVED: report["moved"],
        metrics.INTERRUPTED_LAUNCHES: report["replacements"],
        metrics.INTERRUPTION_MALFORMED: report["malformed"],
        metrics.INTERRUPTION_CONTRADICTED: report["contradicted"],
    }
    metrics.emit(written, values)
    if report.total():
        logger.info(
            "Followed events about machines", extra={str(name): count for name, count in report.items() if count}
        )
