"""A machine is given up: nothing new comes to it, its claim says by when it must be empty, and termination drains it.

Each claim is finished by itself, so whatever dies in between leaves the rest as they were. A claim that is being
deleted is drained by termination, and its pods are placed elsewhere by every decision, whoever makes it. The drain of
one whose pods have no place yet begins a little later, once it is known who stays for what; the message that begins it
in any case is on its way before anything else is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError
from msgspec.structs import replace

from functions.interruption.deadline import stamp
from shared import aws, hints, parallel, queues, runtime
from shared.api import labels as names
from shared.api import taints
from shared.api.kubernetes import Node
from shared.cluster import resources, writes
from shared.cluster.errors import ApiError, NotFoundError
from shared.cluster.listing import list_objects
from shared.instance_types import unavailable_offerings
from shared.termination import delayed_eviction, requeue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from functions.interruption.settings import InterruptionSettings
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client
    from shared.termination.delayed_eviction import DelayedPods

_WORTH_LISTING = 20
"""From so many nodes on, one list is cheaper than a read each."""
_A_MESSAGE = 5
UNDECIDED = timedelta(seconds=15)
"""How long a drain waits for its pods to be given places: longer than a decision takes, and most of the notice left."""


@dataclass(frozen=True, kw_only=True)
class Giving:
    """A claim to give up; ``by`` is when its machine goes (None: it has no end but the drain's).

    ``undecided`` says that its pods will be given places yet, and should stay that long; ``stay`` who stays for what
    (:mod:`shared.termination.delayed_eviction`).
    """

    claim: NodeClaim
    by: datetime | None
    reason: str
    message: str
    undecided: bool = False
    stay: DelayedPods = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Taking:
    """What machines are given up with."""

    client: Client
    settings: InterruptionSettings
    logger: Logger

    def give_up(self, givings: Sequence[Giving]) -> frozenset[str]:
        """Give up each; the names of the claims that it went wrong for, to be tried again.

        Raises:
            ClientError: the termination queue can't be reached.
        """
        nodes = self._nodes(givings)
        later = runtime.current().now() + UNDECIDED
        self._drain([g.claim.name for g in givings if g.undecided], after=UNDECIDED)

        def one(giving: Giving) -> bool:
            try:
                self._give_up(giving, nodes, later)
            except (ApiError, BotoCoreError, ClientError) as error:
                self.logger.warning(
                    "A node will be given up on the next try",
                    extra={"nodeclaim": giving.claim.name, "error": type(error).__name__, "why": str(error)},
                )
                return False
            return True

        done = parallel.each(one, givings)
        self._drain([g.claim.name for g, well in zip(givings, done, strict=True) if well and not g.undecided])
        return frozenset(g.claim.name for g, well in zip(givings, done, strict=True) if not well)

    def begin(self, stay: Mapping[str, DelayedPods]) -> None:
        """Begin the drains of claims (by name) whose pods have been given places: who stays for what is known now.

        Raises:
            ClientError: the termination queue can't be reached.
        """

        def one(item: tuple[str, DelayedPods]) -> bool:
            name, found = item
            try:
                self._annotate(
                    name, {delayed_eviction.ANNOTATION: delayed_eviction.encode(found), requeue.REQUEUE_AT: None}
                )
            except NotFoundError:
                return False
            except ApiError as error:
                # Its drain begins by itself, only later, and nobody stays for a place.
                self.logger.warning("A drain begins late", extra={"nodeclaim": name, "why": str(error)})
                return False
            return True

        items = sorted(stay.items())
        done = parallel.each(one, items)
        self._drain([name for (name, _), well in zip(items, done, strict=True) if well])

    def mark_scarce(self, claims: Iterable[NodeClaim], *, reason: str) -> None:
        """Remember that the claims' offerings are scarce, each once."""
        now = runtime.current().now()
        bought, kind, zone = names.CAPACITY_TYPE, names.INSTANCE_TYPE, names.ZONE
        told = (c.metadata.labels for c in claims)
        offerings = sorted({(t.get(bought, ""), t.get(kind, ""), t.get(zone, "")) for t in told})
        unavailable_offerings.mark(aws.dynamodb(), self.settings.table_name, offerings, reason=reason, now=now)

    def cordon(self, node: Node) -> None:
        """As ``kubectl cordon`` does: nothing new comes, what is there stays."""
        writes.update(
            self.client, resources.NODES, node, lambda n: replace(n, spec=replace(n.spec, unschedulable=True))
        )

    def _give_up(self, giving: Giving, nodes: dict[str, Node] | None, later: datetime) -> None:
        claim = giving.claim
        try:
            self._taint(claim, nodes)
            self._stamp(giving, later)
            writes.delete(self.client, resources.NODE_CLAIMS, claim)
        except NotFoundError:
            return
        self.logger.info(
            "A node is given up", extra={"nodeclaim": claim.name, "reason": giving.reason, "why": giving.message}
        )

    def _nodes(self, givings: Sequence[Giving]) -> dict[str, Node] | None:
        """The nodes by name, if it is worth listing them."""
        if len(givings) < _WORTH_LISTING:
            return None
        return {n.metadata.name: n for n in list_objects(self.client, resources.NODES, Node).objects}

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

    def _stamp(self, giving: Giving, later: datetime) -> None:
        """Write by when it must be empty and who stays; a drain that is under way looks at it at once."""
        claim, by = giving.claim, giving.by
        annotations: dict[str, str | None] = {}
        moment = stamp(claim, by, now=runtime.current().now()) if by is not None else None
        if moment is not None:
            annotations = {names.TERMINATION_TIMESTAMP: moment.isoformat(), requeue.REQUEUE_AT: None}
        if giving.undecided and claim.metadata.deletion_timestamp is None:
            annotations[requeue.REQUEUE_AT] = later.isoformat()
        if giving.stay:
            annotations[delayed_eviction.ANNOTATION] = delayed_eviction.encode(giving.stay)
        if annotations:
            self._annotate(claim.name, annotations)

    def _annotate(self, claim: str, annotations: Mapping[str, str | None]) -> None:
        self.client.patch(resources.NODE_CLAIMS.path(claim), {"metadata": {"annotations": annotations}})

    def _drain(self, claims: Sequence[str], *, after: timedelta = timedelta()) -> None:
        """Have termination look at the claims, in messages of a few: those of one message follow one another."""
        now = runtime.current().now()
        for few in (claims[i : i + _A_MESSAGE] for i in range(0, len(claims), _A_MESSAGE)):
            for body in hints.message_bodies(hints.DRAIN, cluster=self.settings.cluster_name, keys=few, time=now):
                queues.send_delayed(aws.sqs(), self.settings.termination_queue_url, body=body, delay=after)


def _tainted(node: Node) -> Node:
    """As termination leaves it, so that it finds nothing to change."""
    return replace(
        node,
        metadata=replace(node.metadata, labels={**node.metadata.labels, names.EXCLUDE_BALANCERS: "karpenter"}),
        spec=replace(node.spec, taints=taints.with_disrupted(node.spec.taints)),
    )
