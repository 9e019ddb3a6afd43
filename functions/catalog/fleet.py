"""What the catalog function of a fleet looks at each minute: silent clusters, and undelivered events.

A cluster whose functions don't run can't report it. An alarm on each cluster's invocations would cost as much as a
cluster's own alarm.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from functions.catalog import silent_clusters
from shared.base import aws, metrics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from mypy_boto3_sqs.type_defs import MessageTypeDef

    from functions.catalog.settings import CatalogSettings

_MAX_MESSAGES = 10
"""SQS's limit of one receive."""
_RULE = "RULE_ARN"
"""The attribute of EventBridge's dead letters with their rule."""


def check(settings: CatalogSettings, *, now: datetime) -> None:
    """Report clusters without a recent sweep, and undelivered events with what they were for.

    Raises:
        ClientError: the table or the queue can't be read.
    """
    for cluster, since in silent_clusters.silent(
        aws.dynamodb_with_errors(), settings.sweeps_table, settings.members, now=now
    ):
        why = f"cluster {cluster} is silent: {since}"
        metrics.report_unwell("cluster-silent", why, weight=metrics.ALARMING, cluster=cluster)
    url = settings.undelivered_queue_url
    answer = aws.sqs().get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
    if count := int(answer["Attributes"]["ApproximateNumberOfMessages"]):
        _report_undelivered(url, count, settings.members)


def _report_undelivered(url: str, count: int, clusters: Sequence[str]) -> None:
    # They stay visible: they are looked at, not taken. The queue has no dead-letter queue, so receives don't matter.
    messages = aws.sqs().receive_message(
        QueueUrl=url, MaxNumberOfMessages=_MAX_MESSAGES, VisibilityTimeout=0, MessageAttributeNames=["All"]
    )
    senders = sorted({sender for message in messages.get("Messages", []) if (sender := _sender(message))})
    by_cluster: dict[str, list[str]] = {}
    for sender in senders:
        by_cluster.setdefault(_cluster_of(sender, clusters), []).append(sender)
    for cluster, its_senders in (by_cluster or {"": ["senders unknown"]}).items():
        why = f"the fleet's queue of undelivered events has {count}, among them of {', '.join(its_senders)}"
        metrics.report_unwell("dead-letters", why, weight=metrics.ALARMING, cluster=cluster)


def _sender(message: MessageTypeDef) -> str:
    """The name of the function that failed or of the rule whose event was not delivered, which has the cluster's."""
    attributes = message.get("MessageAttributes", {})
    rule = attributes[_RULE].get("StringValue", "") if _RULE in attributes else ""
    return (rule or _function(message.get("Body", ""))).rpartition(":")[2].removeprefix("rule/")


def _function(body: str) -> str:
    """The ARN of the function whose failure destination the queue is, without its version."""
    try:
        record: Any = json.loads(body)
    except ValueError:
        return ""
    context = record.get("requestContext") if isinstance(record, dict) else None
    arn = context.get("functionArn") if isinstance(context, dict) else None
    return ":".join(arn.split(":")[:7]) if isinstance(arn, str) else ""


def _cluster_of(sender: str, clusters: Sequence[str]) -> str:
    """The cluster in a rule's or function's name; "" if its name was cut, which the sender's name still shows."""
    names: Mapping[str, tuple[str, ...]] = {c: (f"tenon-{c}.", f"tenon-{c}-", f"tenon-{c}/") for c in clusters}
    matching = [cluster for cluster, prefixes in names.items() if sender.startswith(prefixes)]
    return max(matching, key=len, default="")
