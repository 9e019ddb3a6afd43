"""The interruption function: the events of the interruption queue in batches, and a sweep every minute."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics
from botocore.exceptions import BotoCoreError, ClientError

from functions.interruption.batch import parse_batch
from functions.interruption.controller import InterruptionController, Report
from functions.interruption.settings import InterruptionSettings
from shared.base import aws, metrics, queues, runtime
from shared.base.settings import read
from shared.cluster.errors import ApiError

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from shared.base.metrics import Metric

logger = Logger(service="interruption")
powertools_metrics = Metrics(namespace=metrics.NAMESPACE, service="interruption")


@metrics.watched("interruption")
@logger.inject_lambda_context
def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Handle a whole batch together, or sweep; the response lists the messages to redeliver."""
    settings = read(InterruptionSettings, runtime.current().environ)
    report: Report = Report()
    batch = parse_batch(event, dead_letter_queue_url=settings.dead_letter_queue_url, logger=logger)
    half = timedelta(milliseconds=context.get_remaining_time_in_millis() / 2)
    failed: frozenset[str] = frozenset()
    if batch.messages or batch.sweep:
        try:
            failed = InterruptionController(
                settings, run=context.aws_request_id, until=runtime.current().now() + half, report=report, logger=logger
            ).reconcile(batch.messages, sweep=batch.sweep)
        except (ApiError, BotoCoreError, ClientError) as error:
            logger.warning(
                "Handling events failed and is tried again", extra={"error": type(error).__name__, "why": str(error)}
            )
            failed = frozenset(m.id for m in batch.messages)
    _emit_metrics(report, received=len(batch.messages) + batch.malformed, malformed=batch.malformed)
    return queues.retry_response(aws.sqs(), event, failed) if batch.messages else queues.partial_batch_response(())


def _emit_metrics(report: Report, *, received: int, malformed: int) -> None:
    values: dict[Metric, float] = {
        metrics.INTERRUPTIONS: received,
        metrics.INTERRUPTED: report["drained"],
        metrics.PROACTIVELY_REPLACED: report["replaced"],
        metrics.INTERRUPTION_LAUNCHES: report["launched"],
        metrics.INTERRUPTION_MALFORMED: malformed,
        metrics.INTERRUPTION_CONTRADICTED: report["contradicted"],
    }
    metrics.emit(powertools_metrics, values)
    if report.total() or malformed:
        counts = {str(name): count for name, count in report.items() if count}
        logger.info("Handled interruption events", extra=counts | ({"malformed": malformed} if malformed else {}))
