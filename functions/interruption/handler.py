"""The interruption function: the events of the interruption queue in batches, and a sweep every minute."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics

from functions.interruption.batch import Report, parse_batch
from functions.interruption.controller import InterruptionController
from functions.interruption.cordon_and_drain import Drainer
from functions.interruption.replacement_launch import ReplacementLaunch
from functions.interruption.settings import InterruptionSettings
from shared.base import aws, metrics, queues, runtime
from shared.base.settings import read
from shared.cluster.connect import connect
from shared.cluster.events import recorder
from shared.cluster.invocations import attempt, entry_point
from shared.provisioning.provisioner import provisioner_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_lambda_powertools.utilities.typing import LambdaContext

    from shared.base.metrics import Metric

logger = Logger(service="interruption")
emf_metrics = Metrics(namespace=metrics.NAMESPACE, service="interruption")


@entry_point(logger, respond=queues.respond)
def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, int]:
    """Handle a whole batch together, or sweep; returns the messages to deliver again, with the seconds until then."""
    settings = read(InterruptionSettings, runtime.current().environ)
    report: Report = Report()
    waited = _longest_wait(event)
    batch = parse_batch(event, sqs=aws.sqs, dead_letter_queue_url=settings.dead_letter_queue_url, logger=logger)
    failed = frozenset(m.id for m in batch.messages)
    if batch.messages or batch.sweep:
        with attempt("Handling events", logger):
            failed = _controller(settings, context, report).reconcile(batch.messages, sweep=batch.sweep)
    _emit_metrics(report, waited, received=len(batch.messages) + batch.malformed, malformed=batch.malformed)
    return queues.redelivery(event, failed)


def _controller(settings: InterruptionSettings, context: LambdaContext, report: Report) -> InterruptionController:
    process, client = runtime.current(), connect(settings)
    return InterruptionController(
        settings,
        client=client,
        recorder=recorder(client),
        drainer=Drainer(
            settings=settings, client=client, dynamodb=aws.dynamodb, sqs=aws.sqs, now=process.now, logger=logger
        ),
        replacements=ReplacementLaunch(
            provisioner=provisioner_of(settings, by="interruption", run=context.aws_request_id, logger=logger),
            until=process.now() + timedelta(milliseconds=context.get_remaining_time_in_millis() / 2),
            runtime=process,
            report=report,
            logger=logger,
        ),
        dynamodb=aws.dynamodb,
        ec2=aws.ec2_short_timeout,
        runtime=process,
        report=report,
        logger=logger,
    )


def _longest_wait(event: Mapping[str, Any]) -> dict[Metric, float]:
    """Seconds that the oldest message of a batch was in the queue; nothing of a sweep, or without times."""
    times = (str(record.get("attributes", {}).get("SentTimestamp", "")) for record in event.get("Records", ()))
    sent = [int(time) / 1000 for time in times if time.isdecimal()]
    return {metrics.INTERRUPTION_QUEUE_SECONDS: runtime.current().now().timestamp() - min(sent)} if sent else {}


def _emit_metrics(report: Report, waited: Mapping[Metric, float], *, received: int, malformed: int) -> None:
    values: dict[Metric, float] = {
        **waited,
        metrics.INTERRUPTIONS: received,
        metrics.INTERRUPTED: report["drained"],
        metrics.PROACTIVELY_REPLACED: report["replaced"],
        metrics.INTERRUPTION_LAUNCHES: report["launched"],
        metrics.INTERRUPTION_MALFORMED: malformed,
        metrics.INTERRUPTION_CONTRADICTED: report["contradicted"],
    }
    metrics.emit(emf_metrics, values)
    if report.total() or malformed:
        counts = {str(name): count for name, count in report.items() if count}
        logger.info("Handled interruption events", extra=counts | ({"malformed": malformed} if malformed else {}))
