"""Looks for dead letters every five minutes, because an alarm on each queue would cost more than all the requests."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from shared.base import metrics
from shared.base.runtime import in_threads

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from aws_lambda_powertools import Logger
    from mypy_boto3_sqs import SQSClient

    from functions.lifecycle.settings import LifecycleSettings

INTERVAL = timedelta(minutes=5)


def check(settings: LifecycleSettings, *, sqs: Callable[[], SQSClient], logger: Logger, now: datetime) -> None:
    """Report queues that have dead letters, if it is time to look. Queues that can't be read are logged."""
    if now.minute % (INTERVAL.total_seconds() // 60):
        return
    urls: list[str] = json.loads(settings.dead_letter_queues)
    counts = zip(urls, in_threads(lambda url: _count(sqs(), url, logger), urls), strict=True)
    waiting = [f"{url.rpartition('/')[2]} has {count}" for url, count in counts if count]
    if waiting:
        metrics.report_unwell("dead-letters", ", ".join(waiting), weight=metrics.ALARMING)


def _count(sqs: SQSClient, url: str, logger: Logger) -> int:
    try:
        answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
    except (BotoCoreError, ClientError) as error:
        logger.warning("A dead-letter queue can't be read", extra={"queue": url, "why": str(error)})
        return 0
    return int(answer["Attributes"]["ApproximateNumberOfMessages"])
