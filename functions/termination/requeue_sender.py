"""Requeues drains: writes each NodeClaim's requeue time, and sends those due together in one delayed message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared import aws, hints, queues, runtime
from shared.cluster import resources
from shared.cluster.errors import ConflictError, InvalidError, NotFoundError
from shared.termination.requeue import REQUEUE_AT, is_scheduled, requeue_after

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from functions.termination.settings import TerminationSettings
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client
    from shared.termination.requeue import WaitReason


class RequeueSender:
    """The drains that one invocation requeues. Requeue times are written at once, messages by :meth:`send`."""

    def __init__(self, client: Client, settings: TerminationSettings) -> None:
        self._client = client
        self._settings = settings
        self._claims_by_wait: dict[timedelta, list[str]] = {}

    def requeue(self, claim: NodeClaim, wait_reason: WaitReason, *, latest: datetime | None = None) -> None:
        """Requeue the NodeClaim, not later than ``latest``, unless a requeue by then is scheduled already."""
        now = runtime.current().now()
        wait = requeue_after(claim, wait_reason, latest=latest, now=now)
        if not is_scheduled(claim, until=now + wait, now=now) and self._write_requeue_time(claim, now + wait):
            self._claims_by_wait.setdefault(wait, []).append(claim.name)

    def send(self) -> None:
        """Send the delayed messages."""
        now = runtime.current().now()
        for wait, claims in self._claims_by_wait.items():
            for body in hints.message_bodies(hints.DRAIN, cluster=self._settings.cluster_name, keys=claims, time=now):
                queues.send_delayed(aws.sqs(), self._settings.termination_queue_url, body=body, delay=wait)
        self._claims_by_wait.clear()

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
