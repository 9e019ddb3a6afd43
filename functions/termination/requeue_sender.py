"""When the claims of an invocation are looked at again: stamped on each, and sent as few delayed messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared import aws, hints, queues, runtime
from shared.cluster import resources
from shared.cluster.errors import ConflictError, InvalidError, NotFoundError
from shared.termination import requeue

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from functions.termination.settings import TerminationSettings
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client
    from shared.termination.requeue import WaitReason


class Looks:
    """The next looks of one invocation. Each is stamped at once, and sent with the others by :meth:`send`."""

    def __init__(self, client: Client, settings: TerminationSettings) -> None:
        self._client = client
        self._settings = settings
        self._later: dict[timedelta, list[str]] = {}

    def again(self, claim: NodeClaim, awaited: WaitReason, *, latest: datetime | None = None) -> None:
        """Look at the claim again in a while, never later than ``latest``; not if another look sees to it."""
        now = runtime.current().now()
        wait = requeue.requeue_after(claim, awaited, latest=latest, now=now)
        if not requeue.is_scheduled(claim, until=now + wait, now=now) and self._reserve(claim, now + wait):
            self._later.setdefault(wait, []).append(claim.name)

    def send(self) -> None:
        """Send the next looks of everything that was followed, those due together in one message."""
        now = runtime.current().now()
        for wait, claims in self._later.items():
            for body in hints.message_bodies(hints.DRAIN, cluster=self._settings.cluster_name, keys=claims, time=now):
                queues.send_delayed(aws.sqs(), self._settings.termination_queue_url, body=body, delay=wait)
        self._later.clear()

    def _reserve(self, claim: NodeClaim, moment: datetime) -> bool:
        """Put the next look's time on the claim; False when another look has, since this one read it."""
        path = resources.NODE_CLAIMS.path(claim.name)
        before = claim.metadata.annotations.get(requeue.REQUEUE_AT)
        place = "/metadata/annotations/" + requeue.REQUEUE_AT.replace("/", "~1")
        try:
            if before is None:
                self._client.patch(path, {"metadata": {"annotations": {requeue.REQUEUE_AT: moment.isoformat()}}})
            else:
                test = {"op": "test", "path": place, "value": before}
                self._client.patch(
                    path, [test, {"op": "replace", "path": place, "value": moment.isoformat()}], kind="json"
                )
        except (NotFoundError, ConflictError, InvalidError):
            return False
        return True
