"""Requeues drains: writes each NodeClaim's requeue time, and sends those due together in one delayed message.

A node without a NodeClaim is drained in the same way, with a NodeClaim of kind Node in place of its own: its requeue
time is an annotation on the node, and its message names the node.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from functions.termination import step_stamp
from shared.api import nodeclaim
from shared.base import hints, queues
from shared.cluster.errors import ConflictError, InvalidError, NotFoundError
from shared.termination.requeue import MAX_REQUEUES, REQUEUE_AT, is_scheduled, requeue_after

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from aws_lambda_powertools import Logger
    from mypy_boto3_sqs import SQSClient

    from functions.termination.settings import TerminationSettings
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client
    from shared.termination.requeue import WaitReason


class RequeueSender:
    """The drains that one invocation requeues. Requeue times are written at once, messages by :meth:`send`.

    ``requeues`` is how many messages the chain of this invocation has had.
    """

    def __init__(
        self,
        client: Client,
        settings: TerminationSettings,
        *,
        sqs: Callable[[], SQSClient],
        now: Callable[[], datetime],
        requeues: int,
        logger: Logger,
    ) -> None:
        self._client = client
        self._settings = settings
        self._sqs = sqs
        self._now = now
        self._requeues = requeues
        self._logger = logger
        self._names_by_delay: dict[tuple[int, str], list[str]] = {}
        """The objects to reconcile, by seconds until then and by the message's detail-type."""

    def requeue(
        self,
        claim: NodeClaim,
        wait_reason: WaitReason,
        *,
        latest: datetime | None = None,
        pods_evicted_at: datetime | None = None,
    ) -> None:
        """Requeue the NodeClaim, not later than ``latest``, unless a requeue by then is scheduled already."""
        now = self._now()
        wait = requeue_after(claim, wait_reason, latest=latest, now=now, pods_evicted_at=pods_evicted_at)
        if is_scheduled(claim, until=now + wait, now=now) or not self._write_requeue_time(claim, now + wait):
            step_stamp.remove(self._client, claim)
            return
        detail_type = hints.DRAIN if claim.kind == nodeclaim.KIND else hints.NODES_DELETING
        self._names_by_delay.setdefault((-int(-wait.total_seconds() // 1), detail_type), []).append(claim.name)

    def send(self) -> None:
        """Send the delayed messages, one for all drains that are due in the same second.

        A chain that has had :data:`MAX_REQUEUES` messages ends; the next sweep finds that its drains are overdue.
        """
        now = self._now()
        if self._requeues >= MAX_REQUEUES and self._names_by_delay:
            drains = sorted(name for names in self._names_by_delay.values() for name in names)
            self._logger.warning(
                "A chain of reconciles has ended; the next sweep continues its drains",
                extra={"requeues": self._requeues, "nodeclaims": drains},
            )
            self._names_by_delay.clear()
        for (seconds, detail_type), names in self._names_by_delay.items():
            for body in hints.message_bodies(
                detail_type, cluster=self._settings.cluster_name, keys=names, time=now, requeues=self._requeues + 1
            ):
                delay = timedelta(seconds=seconds)
                queues.send_delayed(self._sqs(), self._settings.termination_queue_url, body=body, delay=delay)
        self._names_by_delay.clear()

    def _write_requeue_time(self, claim: NodeClaim, moment: datetime) -> bool:
        """Write the requeue time, and remove the step's stamp.

        False when another invocation wrote either since this one read or stamped the NodeClaim.
        """
        before = claim.metadata.annotations.get(REQUEUE_AT)
        pointer = "/metadata/annotations/" + REQUEUE_AT.replace("/", "~1")
        removal = step_stamp.removal(claim)
        try:
            if before is None and not removal:
                self._client.patch(
                    step_stamp.path(claim), {"metadata": {"annotations": {REQUEUE_AT: moment.isoformat()}}}
                )
            else:
                test = [{"op": "test", "path": pointer, "value": before}] if before is not None else []
                change = {"op": "add", "path": pointer, "value": moment.isoformat()}
                self._client.patch(step_stamp.path(claim), [*removal, *test, change], kind="json")
        except (NotFoundError, ConflictError, InvalidError):
            return False
        return True
