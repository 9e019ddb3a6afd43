"""Durations of what ended between two reads of the cluster: terminations, nodes' lives, drains, and pods until bound.

An object's end is when it was first read to be gone, so each duration is long by at most one interval.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cli.export import families
from cli.export.exposition import Sample, sample
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import condition, is_true
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from cli.export.families import Family
    from shared.api.kubernetes import Node, Pod
    from shared.api.meta import ObjectMeta
    from shared.api.nodeclaim import NodeClaim
    from shared.snapshot import Snapshot

_BY_POOL = (families.CLAIM_TERMINATION, families.NODE_TERMINATION, families.NODE_LIFETIME)


class _Seen(Struct):
    """What the last read had, by uid."""

    claims: dict[str, NodeClaim]
    nodes: dict[str, Node]
    drained: frozenset[str]
    unbound: frozenset[str]
    pods: frozenset[str]


class ObservedEnds:
    """Sums and counts from one snapshot to the next."""

    def __init__(self) -> None:
        self._seen: _Seen | None = None
        self._sums: dict[tuple[str, str], float] = {}
        """Seconds by metric and NodePool."""
        self._counts: Counter[tuple[str, str]] = Counter()
        self._drained: Counter[str] = Counter()

    def observe(self, snapshot: Snapshot) -> None:
        """Count what has ended since the last snapshot; the first one is only remembered."""
        current = _seen(snapshot)
        if self._seen is not None:
            self._observe_claims(self._seen, current, snapshot.taken_at)
            self._observe_nodes(self._seen, current, snapshot.taken_at)
            self._observe_pods(self._seen, snapshot.pods)
        for pool in snapshot.node_pools:
            self._drained[pool.name] += 0  # from the start, so that the first increase is seen
        self._seen = current

    def samples(self) -> Iterator[Sample]:
        """The sums and counts now."""
        for pool, count in sorted(self._drained.items()):
            yield sample(families.DRAINED, count, nodepool=pool)
        for family in (*_BY_POOL, families.PODS_BOUND):
            for name, pool in sorted(self._counts):
                if name == family.name:
                    yield sample(family, self._counts[name, pool], suffix="_count", nodepool=pool)
                    yield sample(family, self._sums[name, pool], suffix="_sum", nodepool=pool)

    def _observe_claims(self, before: _Seen, current: _Seen, now: datetime) -> None:
        for uid in before.claims.keys() - current.claims.keys():
            metadata = before.claims[uid].metadata
            self._measure(families.CLAIM_TERMINATION, _pool(metadata), metadata.deletion_timestamp, now)
        for uid in current.drained - before.drained:
            self._drained[_pool(current.claims[uid].metadata)] += 1

    def _observe_nodes(self, before: _Seen, current: _Seen, now: datetime) -> None:
        deleted = {c.status.provider_id: c.metadata.deletion_timestamp for c in before.claims.values()}
        for uid in before.nodes.keys() - current.nodes.keys():
            node, metadata = before.nodes[uid], before.nodes[uid].metadata
            # A drain begins with the deletion of the NodeClaim; the node is deleted at its end, if users didn't before.
            since = metadata.deletion_timestamp or deleted.get(node.spec.provider_id)
            self._measure(families.NODE_TERMINATION, _pool(metadata), since, now)
            self._measure(families.NODE_LIFETIME, _pool(metadata), metadata.creation_timestamp, now)

    def _observe_pods(self, before: _Seen, pods: Iterable[Pod]) -> None:
        for pod in pods:
            uid = pod.metadata.uid
            if uid in before.unbound or uid not in before.pods:
                scheduled = condition(pod.status.conditions, "PodScheduled")
                if scheduled is not None and scheduled.status == "True":
                    self._measure(
                        families.PODS_BOUND, "", pod.metadata.creation_timestamp, scheduled.last_transition_time
                    )

    def _measure(self, family: Family, pool: str, since: datetime | None, until: datetime | None) -> None:
        if since is not None and until is not None:
            key = family.name, pool
            self._counts[key] += 1
            self._sums[key] = self._sums.get(key, 0.0) + max(0.0, (until - since).total_seconds())


def _seen(snapshot: Snapshot) -> _Seen:
    claims = {c.metadata.uid: c for c in snapshot.node_claims}
    bound = {p.metadata.uid: _is_bound(p) for p in snapshot.pods}
    return _Seen(
        claims=claims,
        nodes={n.metadata.uid: n for n in snapshot.nodes if names.NODEPOOL in n.metadata.labels},
        drained=frozenset(uid for uid, c in claims.items() if is_true(c.status.conditions, nodeclaim.DRAINED)),
        unbound=frozenset(uid for uid, is_bound in bound.items() if not is_bound),
        pods=frozenset(bound),
    )


def _is_bound(pod: Pod) -> bool:
    return is_true(pod.status.conditions, "PodScheduled")


def _pool(metadata: ObjectMeta) -> str:
    return metadata.labels.get(names.NODEPOOL, "")
