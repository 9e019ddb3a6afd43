"""A machine is given up: nothing new comes to it, its claim says by when it must be empty, and termination drains it.

Each claim is finished by itself, so whatever dies in between leaves the rest as they were. A claim that is being
deleted is drained by termination, and its pods are placed elsewhere by every decision, whoever makes it.
"""

from __future__ import annotations

import contextvars
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from msgspec.structs import replace

from shared import aws, hints, host
from shared.api import labels as names
from shared.api.kubernetes import Node
from shared.cluster import resources, writes
from shared.cluster.errors import ApiError, NotFoundError
from shared.cluster.listing import objects
from shared.instances import unavailable
from shared.interruption.deadline import stamp
from shared.lifecycle import continuing, draining

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from functions.interruption.settings import InterruptionSettings
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client

T = TypeVar("T")
_AT_ONCE = 8
"""Claims that are worked on together: a round trip is mostly waiting."""
_WORTH_LISTING = 20
"""From so many nodes on, one list is cheaper than a read each."""


@dataclass(frozen=True, kw_only=True)
class Giving:
    """A claim to give up; ``by`` is when its machine goes (None: it has no end but the drain's)."""

    claim: NodeClaim
    by: datetime | None
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Taking:
    """What machines are given up with."""

    client: Client
    settings: InterruptionSettings
    logger: Logger

    def give_up(self, givings: Sequence[Giving]) -> frozenset[str]:
        """Give up each; the names of the claims that it went wrong for, to be tried again."""
        nodes = self._nodes(givings)

        def one(giving: Giving) -> bool:
            try:
                self._give_up(giving, nodes)
            except (ApiError, BotoCoreError, ClientError) as error:
                self.logger.warning(
                    "A node will be given up on the next try",
                    extra={"nodeclaim": giving.claim.name, "error": type(error).__name__, "why": str(error)},
                )
                return False
            return True

        done = _at_once(one, givings)
        return frozenset(g.claim.name for g, well in zip(givings, done, strict=True) if not well)

    def mark_scarce(self, claims: Iterable[NodeClaim], *, reason: str) -> None:
        """Remember that the claims' offerings are scarce, each once."""
        now = host.current().now()
        labels = (names.CAPACITY_TYPE, names.INSTANCE_TYPE, names.ZONE)
        offerings = {tuple(c.metadata.labels.get(key, "") for key in labels) for c in claims}
        for capacity_type, instance_type, zone in sorted(offerings):
            unavailable.mark(
                aws.dynamodb(),
                self.settings.table_name,
                (capacity_type, instance_type, zone),
                reason=reason,
                now=now,
            )

    def cordon(self, node: Node) -> None:
        """As ``kubectl cordon`` does: nothing new comes, what is there stays."""
        writes.update(
            self.client, resources.NODES, node, lambda n: replace(n, spec=replace(n.spec, unschedulable=True))
        )

    def _give_up(self, giving: Giving, nodes: dict[str, Node] | None) -> None:
        claim = giving.claim
        try:
            self._taint(claim, nodes)
            self._stamp(claim, giving.by)
            writes.delete(self.client, resources.NODE_CLAIMS, claim)
        except NotFoundError:
            return
        now = host.current().now()
        # A message each: drains of one message follow one another, those of several run side by side.
        for body in hints.bodies(hints.DRAIN, cluster=self.settings.cluster_name, keys=[claim.name], time=now):
            aws.sqs().send_message(QueueUrl=self.settings.termination_queue_url, MessageBody=body)
        self.logger.info(
            "A node is given up", extra={"nodeclaim": claim.name, "reason": giving.reason, "why": giving.message}
        )

    def _nodes(self, givings: Sequence[Giving]) -> dict[str, Node] | None:
        """The nodes by name, if it is worth listing them."""
        if len(givings) < _WORTH_LISTING:
            return None
        return {n.metadata.name: n for n in objects(self.client, resources.NODES, Node).objects}

    def _taint(self, claim: NodeClaim, nodes: dict[str, Node] | None) -> None:
        name = claim.status.node_name
        if not name:
            return
        try:
            node = nodes.get(name) if nodes is not None else None
            if node is None:
                node = writes.read(self.client, resources.NODES, name, Node)
            writes.update(self.client, resources.NODES, node, _tainted)
        except NotFoundError:
            return

    def _stamp(self, claim: NodeClaim, by: datetime | None) -> None:
        """Write by when it must be empty; a drain that is under way looks at it at once."""
        moment = stamp(claim, by, now=host.current().now()) if by is not None else None
        if moment is None:
            return
        annotations = {names.TERMINATION_TIMESTAMP: moment.isoformat(), continuing.NEXT_LOOK: None}
        self.client.patch(resources.NODE_CLAIMS.path(claim.name), {"metadata": {"annotations": annotations}})


def _at_once(work: Callable[[T], bool], items: Sequence[T]) -> list[bool]:
    """The answers for all items, in order, worked on several at once in this invocation's name."""
    if len(items) <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(_AT_ONCE, len(items))) as pool:
        return [f.result() for f in [pool.submit(contextvars.copy_context().run, work, item) for item in items]]


def _tainted(node: Node) -> Node:
    """As termination leaves it, so that it finds nothing to change."""
    return replace(
        node,
        metadata=replace(node.metadata, labels={**node.metadata.labels, names.EXCLUDE_BALANCERS: "karpenter"}),
        spec=replace(node.spec, taints=draining.with_disrupted(node.spec.taints)),
    )
