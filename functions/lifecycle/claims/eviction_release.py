"""Releases delayed evictions when the replacement nodes that they wait for are registered.

Each drain continues when its own replacement is registered, not when all nodes that join together are. The rules of
delayed evictions are in :mod:`shared.termination.delayed_eviction`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from shared.base.hints import DRAINS_PER_MESSAGE
from shared.cluster import resources
from shared.cluster.errors import NotFoundError
from shared.termination import delayed_eviction, requeue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client
    from shared.termination.delayed_eviction import DelayedPods


def changed_delays(claims: Iterable[NodeClaim], nodes: Mapping[str, Node]) -> dict[str, DelayedPods]:
    """By NodeClaim name, the pods that are still delayed, where that has changed. ``nodes`` are by providerID."""
    claims = tuple(claims)
    arriving = {c.name for c in claims if c.metadata.deletion_timestamp is None and c.status.provider_id not in nodes}
    delayed = {
        c.name: (delayed_eviction.delayed_pods(c), delayed_eviction.still_delayed(c, arriving))
        for c in claims
        if delayed_eviction.ANNOTATION in c.metadata.annotations
    }
    return {name: after for name, (before, after) in delayed.items() if after != before}


def write_delayed_pods(client: Client, claim_name: str, delayed: DelayedPods) -> None:
    """Write the pods that are still delayed, and remove the requeue time: the drain is due at once."""
    annotations = {
        delayed_eviction.ANNOTATION: delayed_eviction.encode(delayed),
        requeue.REQUEUE_AT: None,
    }
    with contextlib.suppress(NotFoundError):
        client.patch(resources.NODE_CLAIMS.path(claim_name), {"metadata": {"annotations": annotations}})


class EvictionRelease:
    """The delayed evictions that one reconcile releases.

    ``write`` writes to a NodeClaim which pods are still delayed; ``wake`` sends drains to the termination function.
    """

    def __init__(
        self,
        claims: Iterable[NodeClaim],
        nodes: Mapping[str, Node],
        *,
        write: Callable[[str, DelayedPods], None],
        wake: Callable[[list[str]], None],
    ) -> None:
        claims = tuple(claims)
        self._changed = changed_delays(claims, nodes)
        self._waiting_for: dict[str, list[str]] = {}
        for claim in claims:
            if claim.name in self._changed:
                for replacement in delayed_eviction.delayed_pods(claim):
                    self._waiting_for.setdefault(replacement, []).append(claim.name)
        self._write = write
        self._wake = wake
        self._released: list[str] = []

    def release_for(self, replacement: str) -> None:
        """Release the evictions that wait for this NodeClaim, whose node is registered now."""
        for claim_name in self._waiting_for.pop(replacement, ()):
            self._release(claim_name)

    def release_rest(self) -> None:
        """Release all others whose replacement is registered or was deleted."""
        for claim_name in list(self._changed):
            self._release(claim_name)
        self._send()

    def _release(self, claim_name: str) -> None:
        delayed = self._changed.pop(claim_name, None)
        if delayed is None:
            return
        self._write(claim_name, delayed)
        self._released.append(claim_name)
        if len(self._released) >= DRAINS_PER_MESSAGE:
            self._send()

    def _send(self) -> None:
        released, self._released = self._released, []
        if released:
            self._wake(released)
