"""Interruption: what EC2 and AWS Health say about machines, by the interruption queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from botocore.exceptions import BotoCoreError, ClientError

from functions.interruption.give_up import GivingUp
from functions.interruption.settings import InterruptionSettings
from shared import aws, host, queues
from shared.cluster.errors import ApiError
from shared.interruption.notice import MalformedEventError
from shared.interruption.parsing import parse
from shared.settings import read

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger(service="interruption")
metrics = Metrics(namespace="Tenon", service="interruption")


@logger.inject_lambda_context
@metrics.log_metrics
def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001 (Lambda's signature)
    """Follow each event; answers which messages should come back."""
    settings = read(InterruptionSettings, host.current().environ)
    giving_up = GivingUp(settings, logger=logger)
    failed = []
    for record in event["Records"]:
        try:
            giving_up.follow(parse(record["body"]))
        except MalformedEventError as error:
            queues.bury(aws.sqs(), settings.dead_letter_queue_url, record=record, reason=str(error))
            logger.exception("A malformed event went to the dead-letter queue", extra={"why": str(error)})
        except (ApiError, BotoCoreError, ClientError) as error:
            logger.warning("An event will be tried again", extra={"error": type(error).__name__, "why": str(error)})
            failed.append(record["messageId"])
    report = giving_up.report
    metrics.add_metric(
        name="karpenter_interruption_received_messages_total", unit=MetricUnit.Count, value=len(event["Records"])
    )
    metrics.add_metric(name="tenon_interruption_given_up_total", unit=MetricUnit.Count, value=report.given_up)
    return queues.come_back(aws.sqs(), event, failed)
