"""Which changes need a hint. Pure: changes in, reconcile requests out.

For each object only the fields that make a difference are remembered, and which objects are still in a transient state
(an unschedulable pod, a node that isn't initialized), so that the hint about them can be repeated. A deletion is
reported once: if that hint is lost, the sweep of the next minute finds the object.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from relay.watched_kinds import (
    POOL_AND_CLASS_KINDS,
    Change,
    KindListed,
    ObjectChanged,
    Watched,
    WatchedNode,
    WatchedNodeClaim,
    WatchedPod,
    WatchedPoolOrClass,
    updates,
)
from relay.watched_room import WatchedBuffer, WatchedRequest
from shared.api import labels as names
from shared.api.taints import REPELLING
from shared.base import hints
from shared.cluster import resources

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator
    from typing import Self

    from shared.cluster.resources import Resource


UNDERUTILIZATION_SHARE = 0.05
"""The share of the running pods that must have left their nodes until nodes count as underutilized. A tenth of one
workload is an autoscaler's daily work; a twentieth of the whole cluster is load that is gone."""
MIN_UNDERUTILIZATION = 3
"""Pods that must have left in any case: in a small cluster, the sweep each minute is enough for one or two."""


_DRAINING_TAINTS = frozenset({names.DISRUPTED_TAINT, names.REBOOTING_TAINT})


class ReconcileRequest(NamedTuple):
    """One object to reconcile: the type of the hint to send, and the object's key."""

    detail_type: str
    key: str


class _PodState(NamedTuple):
    occupied_node: str = ""
    load_node: str = ""
    unschedulable: bool = False


class _NodeState(NamedTuple):
    managed: bool
    ready: bool
    taints: frozenset[tuple[str, str, str]]
    allocatable: frozenset[tuple[str, str]]

    @classmethod
    def of_node(cls, node: WatchedNode) -> Self:
        return cls(
            managed=node.is_managed,
            ready=node.is_ready,
            taints=frozenset((t.key, t.value, t.effect) for t in node.spec.taints if t.effect in REPELLING),
            allocatable=frozenset((name, str(amount)) for name, amount in node.status.allocatable.items()),
        )

    @property
    def disrupted(self) -> bool:
        """Whether the node is being drained, so that its pods leave only to run elsewhere, or to come back."""
        return any(key in _DRAINING_TAINTS for key, _, _ in self.taints)

    def differs_from(self, before: _NodeState) -> bool:
        """Whether readiness or allocatable changed, or a taint that repels pods was removed."""
        return self.ready != before.ready or bool(before.taints - self.taints) or self.allocatable != before.allocatable


class ChangeDetector:
    """Compares each change with the last known state of the object. Not thread-safe."""

    def __init__(self) -> None:
        self._pods: dict[str, _PodState] = {}
        self._pods_on_node: Counter[str] = Counter()
        self._running_pods = 0
        self._most_running_pods = 0
        """Since the last hint about underutilized nodes; pods that a drain moves are not counted as gone."""
        self._nodes: dict[str, _NodeState] = {}
        self._emptied_before_seen: set[str] = set()
        """Nodes whose last pod left before the nodes' watch delivered them."""
        self._generations: dict[Resource, dict[str, tuple[str, int]]] = {kind: {} for kind in POOL_AND_CLASS_KINDS}
        self._node_claims: set[str] = set()
        self._rebooting: set[str] = set()
        """NodeClaims whose node reboots in place."""
        self._buffers: dict[str, Hashable] = {}
        """The version of each CapacityBuffer that Tenon provides."""
        self._requests: dict[str, Hashable] = {}
        """The version of each ProvisioningRequest."""
        self._deleting: dict[Resource, set[str]] = {resources.NODES: set(), resources.NODE_CLAIMS: set()}
        self._listed: set[Resource] = set()
        self.unresolved: dict[str, set[str]] = {hints.PODS_UNSCHEDULABLE: set(), hints.NODES_CHANGED: set()}
        """By type of hint, the keys of objects that are still in the state that the hint reports."""

    def detect(self, change: Change) -> Iterator[ReconcileRequest]:
        """The requests that follow from a change. PodDisruptionBudgets matter to drains only (``blocked_drains``)."""
        for _, request in self.detect_by_object(change):
            yield request

    def detect_by_object(self, change: Change) -> Iterator[tuple[Watched | None, ReconcileRequest]]:
        """The requests, each with the object that it follows from; None for one that is gone."""
        if change.resource == resources.POD_DISRUPTION_BUDGETS:
            return
        after_first_list = isinstance(change, ObjectChanged) or change.resource in self._listed
        if isinstance(change, KindListed):
            self._listed.add(change.resource)
        for key, obj in updates(change, self._known_keys):
            if obj is None:
                requests = self._deleted(change.resource, key)
            else:
                requests = self._updated(change.resource, obj, after_first_list=after_first_list)
            for request in requests:
                yield obj, request

    def _known_keys(self, resource: Resource) -> set[str]:
        if resource == resources.PODS:
            return set(self._pods)
        if resource == resources.NODES:
            return set(self._nodes)
        if resource == resources.NODE_CLAIMS:
            return set(self._node_claims)
        if resource == resources.CAPACITY_BUFFERS:
            return set(self._buffers)
        if resource == resources.PROVISIONING_REQUESTS:
            return set(self._requests)
        return set(self._generations[resource])

    def _updated(self, resource: Resource, obj: Watched, *, after_first_list: bool) -> Iterator[ReconcileRequest]:
        """``after_first_list`` is false for objects older than the relay: the sweeps have reconciled those."""
        if isinstance(obj, WatchedPod):
            yield from self._pod_updated(obj)
        elif isinstance(obj, WatchedNode):
            yield from self._node_updated(obj, after_first_list=after_first_list)
        elif isinstance(obj, WatchedNodeClaim):
            yield from self._node_claim_updated(obj)
        elif isinstance(obj, WatchedBuffer):
            yield from self._buffer_updated(obj)
        elif isinstance(obj, WatchedRequest):
            yield from self._request_updated(obj)
        elif isinstance(obj, WatchedPoolOrClass):
            yield from self._pool_or_class_updated(resource, obj)

    def _deleted(self, resource: Resource, key: str) -> Iterator[ReconcileRequest]:
        if resource == resources.PODS:
            before = self._pods.pop(key, None)
            self._set_unresolved(hints.PODS_UNSCHEDULABLE, key, unresolved=False)
            if before is not None:
                yield from self._pod_moved(before, _PodState())
        elif resource == resources.NODES:
            node = self._nodes.pop(key, None)
            if node is not None and node.managed:
                yield ReconcileRequest(hints.NODES_DELETED, key)
            self._emptied_before_seen.discard(key)
            self._set_unresolved(hints.NODES_CHANGED, key, unresolved=False)
            self._deleting[resource].discard(key)
        elif resource == resources.NODE_CLAIMS:
            self._node_claims.discard(key)
            self._rebooting.discard(key)
            self._deleting[resource].discard(key)
        elif resource == resources.CAPACITY_BUFFERS:
            if self._buffers.pop(key, None) is not None:
                yield ReconcileRequest(hints.CAPACITY_BUFFERS_CHANGED, key)
        elif resource == resources.PROVISIONING_REQUESTS:
            self._requests.pop(key, None)  # what was booked for it is removed by the sweeps
        elif self._generations[resource].pop(key, None) is not None:
            yield ReconcileRequest(hints.NODE_POOLS_CHANGED, f"{resource.kind}/{key}")

    def _pod_updated(self, pod: WatchedPod) -> Iterator[ReconcileRequest]:
        before = self._pods.get(pod.key, _PodState())
        after = _PodState(pod.occupied_node, pod.load_node, pod.is_unschedulable)
        self._pods[pod.key] = after
        self._set_unresolved(hints.PODS_UNSCHEDULABLE, pod.key, unresolved=after.unschedulable)
        if after.unschedulable and not before.unschedulable:
            yield ReconcileRequest(hints.PODS_UNSCHEDULABLE, pod.key)
        yield from self._pod_moved(before, after)
        if self._buffers and after.load_node and after.load_node != before.load_node:
            # A decision is about all buffers, whichever the hint names.
            yield ReconcileRequest(hints.CAPACITY_BUFFERS_CHANGED, next(iter(self._buffers)))

    def _pod_moved(self, before: _PodState, after: _PodState) -> Iterator[ReconcileRequest]:
        """What follows where a pod came to a node or left one: load at once, room when the pod is gone."""
        if after.load_node != before.load_node:
            if after.load_node:
                self._running_pods += 1
                self._most_running_pods = max(self._most_running_pods, self._running_pods)
            if before.load_node and self._is_underutilized_without_pod(before.load_node):
                yield ReconcileRequest(hints.NODES_UNDERUTILIZED, before.load_node)
        if after.occupied_node != before.occupied_node:
            if after.occupied_node:
                self._pods_on_node[after.occupied_node] += 1
                self._emptied_before_seen.discard(after.occupied_node)
            if before.occupied_node:
                yield from self._pod_gone(before.occupied_node)

    def _pod_gone(self, name: str) -> Iterator[ReconcileRequest]:
        self._pods_on_node[name] -= 1
        if self._pods_on_node[name] > 0:
            return
        del self._pods_on_node[name]
        node = self._nodes.get(name)
        if node is None:
            # Pods and nodes arrive by different watches, so the node may still come.
            self._emptied_before_seen.add(name)
        elif node.managed:
            yield ReconcileRequest(hints.NODES_EMPTIED, name)

    def _is_underutilized_without_pod(self, node: str) -> bool:
        """Whether enough pods have left since the last hint, so that nodes may be consolidated."""
        self._running_pods -= 1
        state = self._nodes.get(node)
        if state is None or not state.managed or state.disrupted:
            self._most_running_pods -= 1
            return False
        gone = self._most_running_pods - self._running_pods
        if gone < max(MIN_UNDERUTILIZATION, UNDERUTILIZATION_SHARE * self._most_running_pods):
            return False
        self._most_running_pods = self._running_pods
        return True

    def _node_updated(self, node: WatchedNode, *, after_first_list: bool) -> Iterator[ReconcileRequest]:
        key = node.key
        initializing = node.is_managed and not (node.is_initialized or node.is_standby)
        before = self._nodes.get(key)
        after = _NodeState.of_node(node)
        self._nodes[key] = after
        changed = (after_first_list or initializing) if before is None else after.differs_from(before)
        self._set_unresolved(hints.NODES_CHANGED, key, unresolved=initializing and not node.is_deleting)
        if changed:
            yield ReconcileRequest(hints.NODES_CHANGED, key)
        if self._starts_deleting(resources.NODES, key, deleting=node.is_deleting):
            yield ReconcileRequest(hints.NODES_DELETING, key)
        if key in self._emptied_before_seen:
            self._emptied_before_seen.discard(key)
            if after.managed and not self._pods_on_node[key]:
                yield ReconcileRequest(hints.NODES_EMPTIED, key)

    def _node_claim_updated(self, claim: WatchedNodeClaim) -> Iterator[ReconcileRequest]:
        if claim.key not in self._node_claims and claim.waits_for_launch:
            yield ReconcileRequest(hints.NODE_POOLS_CHANGED, f"{resources.NODE_CLAIMS.kind}/{claim.key}")
        self._node_claims.add(claim.key)
        if claim.is_rebooting and claim.key not in self._rebooting:
            self._rebooting.add(claim.key)
            yield ReconcileRequest(hints.NODES_CHANGED, claim.status.node_name)
        elif not claim.is_rebooting:
            self._rebooting.discard(claim.key)
        deleting = claim.metadata.deletion_timestamp is not None
        if self._starts_deleting(resources.NODE_CLAIMS, claim.key, deleting=deleting):
            yield ReconcileRequest(hints.NODE_CLAIMS_DELETING, claim.key)

    def _request_updated(self, request: WatchedRequest) -> Iterator[ReconcileRequest]:
        before = self._requests.get(request.key)
        self._requests[request.key] = request.version
        if before != request.version:
            yield ReconcileRequest(hints.CAPACITY_BUFFERS_CHANGED, request.key)

    def _buffer_updated(self, buffer: WatchedBuffer) -> Iterator[ReconcileRequest]:
        before = self._buffers.get(buffer.key)
        after = buffer.version
        if buffer.is_active:
            self._buffers[buffer.key] = after
            if before != after:
                yield ReconcileRequest(hints.CAPACITY_BUFFERS_CHANGED, buffer.key)
        elif self._buffers.pop(buffer.key, None) is not None:
            yield ReconcileRequest(hints.CAPACITY_BUFFERS_CHANGED, buffer.key)

    def _pool_or_class_updated(self, resource: Resource, obj: WatchedPoolOrClass) -> Iterator[ReconcileRequest]:
        before = self._generations[resource].get(obj.key)
        after = (obj.metadata.uid, obj.metadata.generation)
        self._generations[resource][obj.key] = after
        if before != after:
            yield ReconcileRequest(hints.NODE_POOLS_CHANGED, f"{resource.kind}/{obj.key}")

    def _starts_deleting(self, resource: Resource, key: str, *, deleting: bool) -> bool:
        """Whether the object is being deleted and wasn't before. A new object of the same name starts afresh."""
        deleting_keys = self._deleting[resource]
        starts = deleting and key not in deleting_keys
        if deleting:
            deleting_keys.add(key)
        else:
            deleting_keys.discard(key)
        return starts

    def _set_unresolved(self, detail_type: str, key: str, *, unresolved: bool) -> None:
        if unresolved:
            self.unresolved[detail_type].add(key)
        else:
            self.unresolved[detail_type].discard(key)
