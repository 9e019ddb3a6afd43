"""Requeues drains: writes each NodeClaim's requeue time, and sends those due together in one delayed message."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from shared import aws, hints, queues, runtime
from shared.cluster import resources
from shared.cluster.errors import ConflictError, InvalidError, NotFoundError
from shared.termination.requeue import MAX_HOPS, REQUEUE_AT, is_scheduled, requeue_after

if TYPE_CHECKING:
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from functions.termination.settings import TerminationSettings
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client
    from shared.termination.requeue import WaitReason


class RequeueSender:
    """The drains that one invocation requeues. Requeue times are written at once, messages by :meth:`send`.

    ``hops`` is how many messages the chain of this invocation has had.
    """

    def __init__(self, client: Client, settings: TerminationSettings, *, hops: int, logger: Logger) -> None:
        self._client = client
        self._settings = settings
        self._hops = hops
        self._logger = logger
        self._claims_by_seconds: dict[int, list[str]] = {}

    def requeue(
        self,
        claim: NodeClaim,
        wait_reason: WaitReason,
        *,
        latest: datetime | None = None,
        pods_evicted_at: datetime | None = None,
    ) -> None:
        """Requeue the NodeClaim, not later than ``latest``, unless a requeue by then is scheduled already."""
        now = runtime.current().now()
        wait = requeue_after(claim, wait_reason, latest=latest, now=now, pods_evicted_at=pods_evicted_at)
        if not is_scheduled(claim, until=now + wait, now=now) and self._write_requeue_time(claim, now + wait):
            self._claims_by_seconds.setdefault(-int(-wait.total_seconds() // 1), []).append(claim.name)

    def send(self) -> None:
        """Send the delayed messages, one for all drains that are due in the same second.

        A chain that has had :data:`MAX_HOPS` messages ends; the next sweep finds that its drains are overdue.
        """
        now = runtime.current().now()
        if self._hops >= MAX_HOPS and self._claims_by_seconds:
            claims = sorted(name for names in self._claims_by_seconds.values() for name in names)
            self._logger.warning(
                "A chain of reconciles has ended; the next sweep continues its drains",
                extra={"hops": self._hops, "nodeclaims": claims},
            )
            self._claims_by_seconds.clear()
        for seconds, claims in self._claims_by_seconds.items():
            for body in hints.message_bodies(
                hints.DRAIN, cluster=self._settings.cluster_name, keys=claims, time=now, hops=self._hops + 1
            ):
                delay = timedelta(seconds=seconds)
                queues.send_delayed(aws.sqs(), self._settings.termination_queue_url, body=body, delay=delay)
        self._claims_by_seconds.clear()

    def _write_requeue_time(self, claim: NodeClaim, moment: datetime) -> bool:
        """Write the requeue time; False when another invocation wrote it since this one read the NodeClaim."""
        path = resources.NODE_CLAIMS.path(claim.name)
        before = claim.metadata.annotations.get(REQUEUE_AT)
        pointer = "/metadata/annotations/" + REQUEUE_AT.replace("/", "~1")
        try:
            if before is None:
                self._client.patch(path, {"metadata": {"annotations": {REQUEUE_AT: moment.isoformat()}}})
            else:
                test = {"op": "test", "path": pointer, "value": before}
                change = {"op": "replace", "path": pointer, "value": moment.isoformat()}
                self._client.patch(path, [test, change], kind="json")
        except (NotFoundError, ConflictError, InvalidError):
            return False
        return True
