"""The buffers function: users' events and alarms' state changes in batches, and reads of queues and alarms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from functions.buffers.controller import Report, reconcile
from functions.buffers.messages import parse_batch
from functions.buffers.readings import SourceReader
from functions.buffers.settings import BufferSettings
from shared.base import aws, queues, runtime
from shared.base.settings import read
from shared.cluster.connect import connect
from shared.cluster.events import recorder
from shared.cluster.invocations import attempt, entry_point

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from functions.buffers.messages import Batch

logger = Logger(service="buffers")


@entry_point(logger, respond=queues.respond)
def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, int]:  # noqa: ARG001 (Lambda's signature)
    """Handle a whole batch together; returns the messages to deliver again, with the seconds until then."""
    settings = read(BufferSettings, runtime.current().environ)
    batch = parse_batch(event, settings, sqs=aws.sqs, logger=logger)
    report = Report()
    with attempt("Following queues, alarms and events", logger) as following:
        if batch.arrivals or batch.read:
            report = _reconcile(batch, settings)
    if report.changed or batch.arrivals:
        counts = {"following": report.following, "changed": report.changed, "events": len(batch.arrivals)}
        logger.info("Followed queues, alarms and events", extra=counts)
    return queues.redelivery(event, batch.retried if report.failed or not following.succeeded else ())


def _reconcile(batch: Batch, settings: BufferSettings) -> Report:
    process, client = runtime.current(), connect(settings)
    sources = SourceReader(settings=settings, sqs=aws.sqs, cloudwatch=aws.cloudwatch, cache=process.cache)
    return reconcile(batch, client=client, recorder=recorder(client), sources=sources, now=process.now(), logger=logger)
