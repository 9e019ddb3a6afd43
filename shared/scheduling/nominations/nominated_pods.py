"""Nominations: pods that wait for the nodes that earlier decisions launched for them.

A full node is planned to its last milli-core, and a second decision would not fill it in the same way. So pods stay
nominated for the node that was planned for them until it is up, and nothing is launched for them meanwhile. Only the
pods' names are stored, on the NodeClaim; a nomination ends by itself.

When the node is about to take pods, the lifecycle function writes the nominations to the pods' status, and
kube-scheduler binds them as planned. A pod that loses its node all the same is scheduled again at once: into what is
left on nodes that exist or are coming, or on a new node.

Where the status isn't written (``-c plannedPods=off``), kube-scheduler fills the first node that comes up with pods
that were planned for others. A pod that loses its node this way is deferred until the other nodes are up, as only then
it is known which pods have no capacity.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from shared.api import labels as names
from shared.api.pods import requests
from shared.api.quantity import QuantityError
from shared.base.struct import Struct, with_fields
from shared.scheduling.nominations.planned_pods import (
    closed_windows,
    expired_nominations,
    initialized_for,
    is_nominated_in_status,
    is_planned,
    planned_at,
    planned_pods,
)
from shared.scheduling.rules.host_ports import host_ports

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from shared.api.kubernetes import Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.api.quantity import Resources
    from shared.scheduling.state.state_nodes import StateNode, StateNodes
    from shared.snapshot import Snapshot

DEFERRAL_TIMEOUT = timedelta(minutes=2)
"""The age of a NodeClaim at which pods that lost its node are no longer deferred: most nodes are up sooner."""


class Nominations(Struct, eq=False):
    """The nodes less nominated pods, these pods (namespace/name) by node, and the deferred pods."""

    state_nodes: StateNodes
    pods_by_node: Mapping[str, tuple[str, ...]]
    deferred: frozenset[str]


def nominate(state_nodes: StateNodes, snapshot: Snapshot, pending: Mapping[str, Pod]) -> Nominations:
    """Nominates pending pods (by namespace/name) for the nodes that were launched for them, where they still fit.

    Pods that kube-scheduler or the lifecycle function has nominated for a node keep it. Pods that are neither nominated
    nor deferred may be scheduled anywhere.
    """
    if not pending:
        return Nominations(state_nodes, {}, frozenset())
    planned = list(_claims_with_planned_pods(state_nodes, snapshot))
    now = snapshot.taken_at
    closed = closed_windows(snapshot)
    nodes: dict[str, _NominatedNode] = {}
    for claim, state_node in planned:
        node = _NominatedNode(state_node, claim, now, is_open=claim.name not in closed)
        nodes.setdefault(state_node.name, node)
    kept = _nominated_in_status(state_nodes, snapshot, pending, nodes, closed)
    if not nodes:
        return Nominations(state_nodes, {}, frozenset())
    lost: list[tuple[str, bytes, Resources]] = []
    for claim, state_node, pod, pod_requests in _planned_pods(planned, pending):
        node = nodes[state_node.name]
        if pod.key in kept or (node.is_open and node.add_pod(pod, pod_requests)):
            continue
        if _is_deferrable(pod, claim, now):
            lost.append((pod.key, node.shape, pod_requests))
    coming = [node for node in nodes.values() if node.initialized_for is None]
    deferred = _defer(sorted(lost, key=lambda entry: entry[0]), coming)
    pods_by_node = {name: tuple(sorted(pod.key for pod in node.pods)) for name, node in nodes.items() if node.pods}
    return Nominations(_less_nominated(state_nodes, nodes), pods_by_node, deferred)


def _is_deferrable(pod: Pod, claim: NodeClaim, now: datetime) -> bool:
    """Whether the pod, which lost the NodeClaim's node, may wait until the other nodes are up.

    A pod that runs on a leaving node has had its node: it is scheduled like any other.
    """
    return not pod.spec.node_name and not is_nominated_in_status(claim) and _age(claim, now) < DEFERRAL_TIMEOUT


def _less_nominated(state_nodes: StateNodes, nodes: Mapping[str, _NominatedNode]) -> StateNodes:
    updated = tuple(nodes[node.name].state_node() if node.name in nodes else node for node in state_nodes.nodes)
    return with_fields(state_nodes, nodes=updated)


def _nominated_in_status(
    state_nodes: StateNodes,
    snapshot: Snapshot,
    pending: Mapping[str, Pod],
    nodes: dict[str, _NominatedNode],
    closed: Collection[str],
) -> set[str]:
    """The pods whose status names a node that still waits for them; they are added to ``nodes``.

    Nominations that the lifecycle function wrote end with the window, even if it couldn't clear them.
    """
    nominated = [pod for pod in pending.values() if pod.status.nominated_node_name and not pod.spec.node_name]
    if not nominated:
        return set()
    state_node_by_name = {node.name: node for node in state_nodes.nodes}
    claims = {claim.status.node_name: claim for claim in snapshot.node_claims if claim.status.node_name}
    expired = expired_nominations(nominated, snapshot.node_claims, closed)
    kept: set[str] = set()
    for pod in nominated:
        state_node = state_node_by_name.get(pod.status.nominated_node_name)
        if state_node is None or pod.key in expired:
            continue
        claim = claims.get(pod.status.nominated_node_name)
        node = nodes.get(state_node.name) or _NominatedNode(state_node, claim, snapshot.taken_at, is_open=False)
        nodes[state_node.name] = node
        try:
            node.take(requests(pod))
        except QuantityError:
            continue
        node.pods.append(pod)
        kept.add(pod.key)
    return kept


def _planned_pods(
    planned: Iterable[tuple[NodeClaim, StateNode]], pending: Mapping[str, Pod]
) -> Iterator[tuple[NodeClaim, StateNode, Pod, Resources]]:
    """Each pending pod with valid requests, once, with the first of these NodeClaims that was planned for it.

    The largest pods of a NodeClaim come first: if its node is smaller than planned, the least is lost.
    """
    seen: set[str] = set()
    for claim, state_node in planned:
        pods_with_requests: list[tuple[Pod, Resources]] = []
        for key in planned_pods(claim):
            pod = pending.get(key)
            if pod is None or key in seen or not is_planned(pod, claim):
                continue
            seen.add(key)
            try:
                pods_with_requests.append((pod, requests(pod)))
            except QuantityError:
                continue
        pods_with_requests.sort(key=lambda entry: -_share(entry[1], state_node.capacity))
        for pod, pod_requests in pods_with_requests:
            yield claim, state_node, pod, pod_requests


def _share(pod_requests: Resources, capacity: Resources) -> float:
    """The largest share of the node that the pod takes of any resource."""
    return max((amount / capacity[name] for name, amount in pod_requests.items() if capacity.get(name)), default=0.0)


class _NominatedNode:
    """A node while nominated pods are subtracted from what is available on it; open ones take planned pods."""

    def __init__(self, state_node: StateNode, claim: NodeClaim | None, now: datetime, *, is_open: bool) -> None:
        self.initial = state_node
        self.shape = _shape(claim) if claim is not None else b""
        self.initialized_for = initialized_for(claim, now) if claim is not None else timedelta.max
        self.is_open = is_open
        self.pods: list[Pod] = []
        self._available = dict(state_node.available)

    def add_pod(self, pod: Pod, pod_requests: Resources) -> bool:
        """Nominates the pod. False if it doesn't fit."""
        if any(self._available.get(name, 0) < amount for name, amount in pod_requests.items()):
            return False
        self.take(pod_requests)
        self.pods.append(pod)
        return True

    def take(self, amounts: Resources) -> Resources:
        """Subtracts as much of these amounts as is available; returns the rest."""
        taken = {name: max(0, min(amount, self._available.get(name, 0))) for name, amount in amounts.items()}
        for name, amount in taken.items():
            self._available[name] = self._available.get(name, 0) - amount
        return {name: amount - taken[name] for name, amount in amounts.items() if amount > taken[name]}

    def state_node(self) -> StateNode:
        """The node as other pods may use it."""
        ports = self.initial.ports.union(*(host_ports(pod.spec) for pod in self.pods))
        pods = (*self.initial.pods, *self.pods)
        return with_fields(self.initial, available=self._available, pods=pods, ports=ports)


def _defer(lost: Iterable[tuple[str, bytes, Resources]], coming: Iterable[_NominatedNode]) -> frozenset[str]:
    """The pods that are deferred: those for which a node of their NodeClaim's shape is coming that is large enough.

    How much of it kube-scheduler leaves for them isn't known yet. What is available on these nodes is taken.
    """
    coming_by_shape: defaultdict[bytes, list[_NominatedNode]] = defaultdict(list)
    for node in coming:
        coming_by_shape[node.shape].append(node)
    deferred = set()
    for key, shape, pod_requests in lost:
        nodes = coming_by_shape[shape]
        if any(all(n.initial.available.get(name, 0) >= amount for name, amount in pod_requests.items()) for n in nodes):
            deferred.add(key)
            missing = pod_requests
            for node in nodes:
                missing = node.take(missing)
    return frozenset(deferred)


def _claims_with_planned_pods(state_nodes: StateNodes, snapshot: Snapshot) -> Iterator[tuple[NodeClaim, StateNode]]:
    """The NodeClaims whose planned pods may still come, the latest plan first, each with its node."""
    claims = [
        claim
        for claim in snapshot.node_claims
        if claim.metadata.annotations.get(names.PLANNED_PODS)
        and claim.metadata.deletion_timestamp is None
        and (_age(claim, snapshot.taken_at) < DEFERRAL_TIMEOUT or initialized_for(claim, snapshot.taken_at) is None)
    ]
    if not claims:
        return
    nodes = {node.name: node for node in state_nodes.nodes}
    name_by_provider_id = {n.spec.provider_id: n.metadata.name for n in snapshot.nodes if n.spec.provider_id}
    for claim in sorted(claims, key=lambda c: (snapshot.taken_at - (planned_at(c) or snapshot.taken_at), c.name)):
        name = claim.status.node_name or name_by_provider_id.get(claim.status.provider_id, "")
        node = nodes.get(name) or nodes.get(claim.name)
        if node is not None:
            yield claim, node


def _age(claim: NodeClaim, now: datetime) -> timedelta:
    created = claim.metadata.creation_timestamp
    return now - created if created is not None else timedelta()


def _shape(claim: NodeClaim) -> bytes:
    """Equal for NodeClaims that differ at most in instance type: their pods may take each other's capacity."""
    requirements = [r for r in claim.spec.requirements if names.normalize_key(r.key) != names.INSTANCE_TYPE]
    pool = claim.metadata.labels.get(names.NODEPOOL, "")
    return msgspec.json.encode([pool, requirements, claim.spec.taints])
