"""The buffers function: users' events and alarms' state changes in batches, and reads of queues and alarms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from functions.buffers.controller import Report, reconcile
from functions.buffers.messages import parse_batch
from functions.buffers.readings import SourceReader
from functions.buffers.settings import BufferSettings
from shared.base import aws, metrics, queues, runtime
from shared.base.settings import read
from shared.cluster.connect import connect
from shared.cluster.errors import ApiError
from shared.cluster.events import recorder

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from functions.buffers.messages import Batch

logger = Logger(service="buffers")


@metrics.watched("buffers")
@logger.inject_lambda_context
def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001 (Lambda's signature)
    """Handle a whole batch together; the response lists the messages to redeliver."""
    settings = read(BufferSettings, runtime.current().environ)
    batch = parse_batch(event, settings, sqs=aws.sqs, logger=logger)
    report = Report()
    failed = False
    if batch.arrivals or batch.read:
        try:
            report = _reconcile(batch, settings)
        except (ApiError, BotoCoreError, ClientError) as error:
            logger.warning(
                "Following queues, alarms and events failed and is tried again",
                extra={"error": type(error).__name__, "why": str(error)},
            )
            failed = True
    if report.changed or batch.arrivals:
        counts = {"following": report.following, "changed": report.changed, "events": len(batch.arrivals)}
        logger.info("Followed queues, alarms and events", extra=counts)
    return queues.retry_response(aws.sqs(), event, batch.retried if failed or report.failed else ())


def _reconcile(batch: Batch, settings: BufferSettings) -> Report:
    process, client = runtime.current(), connect(settings)
    sources = SourceReader(settings=settings, sqs=aws.sqs, cloudwatch=aws.cloudwatch, cache=process.cache)
    return reconcile(batch, client=client, recorder=recorder(client), sources=sources, now=process.now(), logger=logger)
