"""What of all that changes is worth a hint. Pure: changes in, hints out.

It remembers of each object only what it takes to see a difference, and which objects are still in a state that has to
end (a pod without a place, a node that isn't up), so that these can be told again. A deletion is told once: if that is
lost, the sweep of the minute finds what nobody follows.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from relay.watched_kinds import (
    POOL_KINDS,
    Change,
    Changed,
    Listed,
    Watched,
    WatchedNode,
    WatchedNodeClaim,
    WatchedObject,
    WatchedPod,
)
from shared import hints
from shared.cluster import resources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.cluster.resources import Resource


class Notice(NamedTuple):
    """A hint to be sent: what about, and the key."""

    about: str
    key: str


class _Pod(NamedTuple):
    occupies: str
    unschedulable: bool


class _Node(NamedTuple):
    ours: bool
    ready: bool
    taints: frozenset[tuple[str, str, str]]
    allocatable: frozenset[tuple[str, str]]


class ChangeDetector:
    """The relay's memory, and its judgement. Not thread-safe."""

    def __init__(self) -> None:
        self._pods: dict[str, _Pod] = {}
        self._occupants: Counter[str] = Counter()
        self._nodes: dict[str, _Node] = {}
        self._left: set[str] = set()
        self._generations: dict[Resource, dict[str, tuple[str, int]]] = {kind: {} for kind in POOL_KINDS}
        self._claims: set[str] = set()
        self._deleting: dict[Resource, set[str]] = {resources.NODES: set(), resources.NODE_CLAIMS: set()}
        self._listed: set[Resource] = set()
        self.standing: dict[str, set[str]] = {
            about: set()
            for about in (
                hints.PODS_UNSCHEDULABLE,
                hints.NODES_CHANGED,
            )
        }
        """By hint, the keys of objects that are still in the state that the hint is about."""

    def detect(self, change: Change) -> Iterator[Notice]:
        """The hints that a change is worth. Budgets bear on drains alone (drains.py)."""
        if change.resource == resources.POD_DISRUPTION_BUDGETS:
            return
        if isinstance(change, Changed):
            if change.gone:
                yield from self._gone(change.resource, change.object.key)
            else:
                yield from self._seen(change.resource, change.object, known=True)
            return
        yield from self._relisted(change)

    def _relisted(self, change: Listed) -> Iterator[Notice]:
        resource = change.resource
        there = {obj.key for obj in change.objects}
        for key in self._known(resource) - there:
            yield from self._gone(resource, key)
        known = resource in self._listed
        self._listed.add(resource)
        for obj in change.objects:
            yield from self._seen(resource, obj, known=known)

    def _known(self, resource: Resource) -> set[str]:
        if resource == resources.PODS:
            return set(self._pods)
        if resource == resources.NODES:
            return set(self._nodes)
        if resource == resources.NODE_CLAIMS:
            return set(self._claims)
        return set(self._generations[resource])

    def _seen(self, resource: Resource, obj: Watched, *, known: bool) -> Iterator[Notice]:
        """``known`` is false for what was there before the relay was: the sweeps know of it."""
        if isinstance(obj, WatchedPod):
            yield from self._pod(obj)
        elif isinstance(obj, WatchedNode):
            yield from self._node(obj, known=known)
        elif isinstance(obj, WatchedNodeClaim):
            yield from self._claim(obj)
        elif isinstance(obj, WatchedObject):
            yield from self._pool(resource, obj)

    def _gone(self, resource: Resource, key: str) -> Iterator[Notice]:
        if resource == resources.PODS:
            before = self._pods.pop(key, None)
            self._stand(hints.PODS_UNSCHEDULABLE, key, holds=False)
            if before is not None:
                yield from self._moved(before.occupies, "")
        elif resource == resources.NODES:
            self._nodes.pop(key, None)
            self._left.discard(key)
            self._stand(hints.NODES_CHANGED, key, holds=False)
            self._deleting[resource].discard(key)
        elif resource == resources.NODE_CLAIMS:
            self._claims.discard(key)
            self._deleting[resource].discard(key)
        elif self._generations[resource].pop(key, None) is not None:
            yield Notice(hints.NODE_POOLS_CHANGED, f"{resource.kind}/{key}")

    def _pod(self, pod: WatchedPod) -> Iterator[Notice]:
        before = self._pods.get(pod.key, _Pod("", unschedulable=False))
        after = _Pod(pod.occupies, pod.is_unschedulable)
        self._pods[pod.key] = after
        self._stand(hints.PODS_UNSCHEDULABLE, pod.key, holds=after.unschedulable)
        if after.unschedulable and not before.unschedulable:
            yield Notice(hints.PODS_UNSCHEDULABLE, pod.key)
        yield from self._moved(before.occupies, after.occupies)

    def _moved(self, before: str, after: str) -> Iterator[Notice]:
        """A pod occupies another node than before, or none."""
        if before == after:
            return
        if after:
            self._occupants[after] += 1
            self._left.discard(after)
        if not before:
            return
        self._occupants[before] -= 1
        if self._occupants[before] > 0:
            return
        del self._occupants[before]
        node = self._nodes.get(before)
        if node is None:
            # pods and nodes come by different watches; the node may be about to
            self._left.add(before)
        elif node.ours:
            yield Notice(hints.NODES_EMPTIED, before)

    def _node(self, node: WatchedNode, *, known: bool) -> Iterator[Notice]:
        key = node.key
        before = self._nodes.get(key)
        after = _Node(
            ours=node.is_ours,
            ready=node.is_ready,
            taints=frozenset((t.key, t.value, t.effect) for t in node.spec.taints),
            allocatable=frozenset((name, str(amount)) for name, amount in node.status.allocatable.items()),
        )
        self._nodes[key] = after
        if before is None:
            changed = known or (node.is_ours and not node.is_settled)
        else:
            changed = (
                before.ready != after.ready
                or bool(before.taints - after.taints)
                or before.allocatable != after.allocatable
            )
        self._stand(hints.NODES_CHANGED, key, holds=node.is_ours and not node.is_settled and not node.is_deleting)
        if changed:
            yield Notice(hints.NODES_CHANGED, key)
        if self._begins(resources.NODES, key, deleting=node.is_deleting):
            yield Notice(hints.NODES_DELETING, key)
        if key in self._left:
            self._left.discard(key)
            if after.ours and not self._occupants[key]:
                yield Notice(hints.NODES_EMPTIED, key)

    def _claim(self, claim: WatchedNodeClaim) -> Iterator[Notice]:
        self._claims.add(claim.key)
        if self._begins(resources.NODE_CLAIMS, claim.key, deleting=claim.metadata.deletion_timestamp is not None):
            yield Notice(hints.NODE_CLAIMS_DELETING, claim.key)

    def _pool(self, resource: Resource, obj: WatchedObject) -> Iterator[Notice]:
        before = self._generations[resource].get(obj.key)
        after = (obj.metadata.uid, obj.metadata.generation)
        self._generations[resource][obj.key] = after
        if before != after:
            yield Notice(hints.NODE_POOLS_CHANGED, f"{resource.kind}/{obj.key}")

    def _begins(self, resource: Resource, key: str, *, deleting: bool) -> bool:
        """Whether the object is being deleted and wasn't before. One of the same name that came since isn't it."""
        known = self._deleting[resource]
        began = deleting and key not in known
        if deleting:
            known.add(key)
        else:
            known.discard(key)
        return began

    def _stand(self, about: str, key: str, *, holds: bool) -> None:
        if holds:
            self.standing[about].add(key)
        else:
            self.standing[about].discard(key)
