"""Nodes that have joined let go the pods that stayed elsewhere until they would.

Each drain goes on as soon as the node that its pods wait for is registered, not when all nodes of a wave are.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from shared.cluster import resources
from shared.cluster.errors import NotFoundError
from shared.termination import delayed_eviction, requeue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client
    from shared.termination.delayed_eviction import DelayedPods

_TOGETHER = 5
"""Drains that are told to go on by one message: those of one message follow one another."""


def released(claims: Iterable[NodeClaim], nodes: Mapping[str, Node]) -> dict[str, DelayedPods]:
    """By claim, who still stays on its node, where that has changed. ``nodes`` are those there, by providerID."""
    claims = tuple(claims)
    arriving = {c.name for c in claims if c.metadata.deletion_timestamp is None and c.status.provider_id not in nodes}
    found = {
        c.name: delayed_eviction.still_delayed(c, arriving)
        for c in claims
        if delayed_eviction.ANNOTATION in c.metadata.annotations
    }
    return {
        c.name: found[c.name] for c in claims if c.name in found and found[c.name] != delayed_eviction.delayed_pods(c)
    }


def release(client: Client, claim: str, stays: DelayedPods) -> None:
    """Write who still stays; the claim's drain is due at once."""
    annotations = {delayed_eviction.ANNOTATION: delayed_eviction.encode(stays), requeue.REQUEUE_AT: None}
    with contextlib.suppress(NotFoundError):
        client.patch(resources.NODE_CLAIMS.path(claim), {"metadata": {"annotations": annotations}})


class Releasing:
    """The drains of one look that can go on. ``write`` puts on a claim who still stays, ``tell`` wakes its drain."""

    def __init__(
        self,
        claims: Iterable[NodeClaim],
        nodes: Mapping[str, Node],
        *,
        write: Callable[[str, DelayedPods], None],
        tell: Callable[[list[str]], None],
    ) -> None:
        claims = tuple(claims)
        self._going = released(claims, nodes)
        self._waiting: dict[str, list[str]] = {}
        for claim in claims:
            if claim.name in self._going:
                for awaited in delayed_eviction.delayed_pods(claim):
                    self._waiting.setdefault(awaited, []).append(claim.name)
        self._write = write
        self._tell = tell
        self._due: list[str] = []

    def after(self, joined: str) -> None:
        """This claim's node is registered now."""
        for claim in self._waiting.pop(joined, ()):
            self._release(claim)

    def rest(self) -> None:
        """Let go all others that have nothing to wait for."""
        for claim in list(self._going):
            self._release(claim)
        self._flush()

    def _release(self, claim: str) -> None:
        stays = self._going.pop(claim, None)
        if stays is None:
            return
        self._write(claim, stays)
        self._due.append(claim)
        if len(self._due) >= _TOGETHER:
            self._flush()

    def _flush(self) -> None:
        due, self._due = self._due, []
        if due:
            self._tell(due)
