"""The messages of an SQS batch: AWS's events about instances, and the function's own about sweeps and drains."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from functions.nodegroups.interruptions import Message
from shared.base import hints, queues
from shared.base.struct import Struct
from shared.interruptions.notice import MalformedEventError
from shared.interruptions.parser import OF_GROUPS, parse

if TYPE_CHECKING:
    from datetime import datetime

    from aws_lambda_powertools import Logger
    from mypy_boto3_sqs import SQSClient

    from functions.nodegroups.settings import NodeGroupSettings

SWEEP_DELAY = timedelta(seconds=40)
"""How long after its schedule a sweep begins: the other functions' sweeps are over by then (the provisioner's begins at
once, disruption's after 20 s)."""
_SWEEP = "sweep"


class Batch(Struct, kw_only=True):
    """``drains`` are nodes by message id; ``requeues`` is how many messages the longest chain has had.

    ``sweeps`` are the ids of messages that begin a sweep.
    """

    events: tuple[Message, ...] = ()
    drains: dict[str, tuple[str, ...]] = {}
    sweeps: tuple[str, ...] = ()
    requeues: int = 0


def parse_batch(
    event: dict[str, Any], settings: NodeGroupSettings, sqs: SQSClient, *, now: datetime, logger: Logger
) -> Batch:
    """The batch of an SQS event; malformed messages go to the dead-letter queue with the reason."""
    events: list[Message] = []
    drains: dict[str, tuple[str, ...]] = {}
    sweeps: list[str] = []
    requeues = 0
    for record in event["Records"]:
        hint = _own_hint(record["body"], settings.cluster_name)
        if hint is not None and hint.detail_type == hints.DRAIN:
            drains[record["messageId"]] = hint.keys
            requeues = max(requeues, hint.requeues)
            continue
        if hint is not None:
            if not _is_replaced(hint, now):
                sweeps.append(record["messageId"])
            continue
        try:
            events.append(Message(id=record["messageId"], event=parse(record["body"], OF_GROUPS)))
        except MalformedEventError as error:
            queues.reject_malformed_event(
                sqs, settings.dead_letter_queue_url, record=record, reason=str(error), logger=logger
            )
    return Batch(events=tuple(events), drains=drains, sweeps=tuple(sweeps), requeues=requeues)


def send_sweep(settings: NodeGroupSettings, sqs: SQSClient, *, now: datetime) -> None:
    """Begin a sweep :data:`SWEEP_DELAY` from now.

    Raises:
        ClientError, BotoCoreError: SQS refuses.
    """
    bodies = hints.message_bodies(hints.REQUEUE, cluster=settings.cluster_name, keys=[_SWEEP], time=now, requeues=1)
    for body in bodies:
        queues.send_delayed(sqs, settings.node_group_queue_url, body=body, delay=SWEEP_DELAY)


def _own_hint(body: str, cluster: str) -> hints.Hint | None:
    """The function's own message about a drain or a sweep; None for everything else."""
    try:
        hint = hints.parse(body, cluster=cluster)
    except hints.MalformedHintError:
        return None
    is_own = hint.source == hints.FUNCTIONS and hint.detail_type in {hints.DRAIN, hints.REQUEUE}
    return hint if is_own else None


def _is_replaced(hint: hints.Hint, now: datetime) -> bool:
    """Whether a later sweep has been sent since, so that retries don't accumulate while all fail."""
    return hint.is_older_than(hints.SWEEP_INTERVAL + SWEEP_DELAY, now=now)
