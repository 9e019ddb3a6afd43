"""Nominations: pods that wait for the nodes that earlier decisions launched for them.

A full node is planned to its last milli-core, and a second decision would not fill it in the same way. So pods stay
nominated for the node that was planned for them until it is up, and nothing is launched for them meanwhile. When nodes
come up one by one, kube-scheduler fills the first with pods that were planned for others. A pod that loses its node
this way is deferred until the other nodes are up, as only then it is known which pods have no capacity. Only the pods'
names are stored, on the NodeClaim; a nomination ends by itself.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import condition
from shared.api.pods import requests
from shared.api.quantity import QuantityError
from shared.scheduling.rules.host_ports import host_ports
from shared.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from shared.api.kubernetes import Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.api.quantity import Resources
    from shared.scheduling.state.state_nodes import StateNode, StateNodes
    from shared.snapshot import Snapshot

NOMINATION_WINDOW = timedelta(seconds=10)
"""How long pods stay nominated for a node after it is initialized: the longest that kube-scheduler backs off from a pod
(podMaxBackoffSeconds)."""
DEFERRAL_TIMEOUT = timedelta(minutes=2)
"""The age of a NodeClaim at which pods that lost its node are no longer deferred: most nodes are up sooner."""

_MAX_ANNOTATION_LENGTH = 200 * 1024
"""Characters of pod names on one NodeClaim; all annotations of an object may have 256 KiB."""


class Nominations(Struct, eq=False):
    """The nodes less nominated pods, these pods (namespace/name) by node, and the deferred pods."""

    state_nodes: StateNodes
    pods_by_node: Mapping[str, tuple[str, ...]]
    deferred: frozenset[str]


def planned_pods_annotation(pods: Iterable[str]) -> str:
    """The value of the annotation that names a NodeClaim's pods (namespace/name); pods beyond its limit are cut off."""
    text = ",".join(pods)
    return text if len(text) <= _MAX_ANNOTATION_LENGTH else text[: text.rindex(",", 0, _MAX_ANNOTATION_LENGTH)]


def nominate(state_nodes: StateNodes, snapshot: Snapshot, pending: Mapping[str, Pod]) -> Nominations:
    """Nominates pending pods (by namespace/name) for the nodes that were launched for them, where they still fit.

    Pods that are neither nominated nor deferred may be scheduled anywhere.
    """
    planned = list(_claims_with_planned_pods(state_nodes, snapshot)) if pending else []
    if not planned:
        return Nominations(state_nodes, {}, frozenset())
    now = snapshot.taken_at
    nodes: dict[str, _NominatedNode] = {}
    for claim, state_node in planned:
        nodes.setdefault(state_node.name, _NominatedNode(state_node, claim, now))
    lost: list[tuple[str, bytes, Resources]] = []
    for claim, state_node, pod, pod_requests in _planned_pods(planned, pending):
        node = nodes[state_node.name]
        if node.is_open and node.add_pod(pod, pod_requests):
            continue
        # A pod that runs on a leaving node has had its node: it is scheduled like any other.
        if not pod.spec.node_name and _age(claim, now) < DEFERRAL_TIMEOUT:
            lost.append((pod.key, node.shape, pod_requests))
    coming = [node for node in nodes.values() if node.initialized_for is None]
    deferred = _defer(sorted(lost, key=lambda entry: entry[0]), coming)
    pods_by_node = {name: tuple(sorted(pod.key for pod in node.pods)) for name, node in nodes.items() if node.pods}
    return Nominations(_less_nominated(state_nodes, nodes), pods_by_node, deferred)


def _less_nominated(state_nodes: StateNodes, nodes: Mapping[str, _NominatedNode]) -> StateNodes:
    updated = tuple(nodes[node.name].state_node() if node.name in nodes else node for node in state_nodes.nodes)
    return replace(state_nodes, nodes=updated)


def _planned_pods(
    planned: Iterable[tuple[NodeClaim, StateNode]], pending: Mapping[str, Pod]
) -> Iterator[tuple[NodeClaim, StateNode, Pod, Resources]]:
    """Each pending pod with valid requests, once, with the first of these NodeClaims that was planned for it."""
    seen: set[str] = set()
    for claim, state_node in planned:
        for key in claim.metadata.annotations[names.PLANNED_PODS].split(","):
            pod = pending.get(key)
            if pod is None or key in seen or _is_younger(pod, claim):
                continue
            seen.add(key)
            try:
                pod_requests = requests(pod)
            except QuantityError:
                continue
            yield claim, state_node, pod, pod_requests


class _NominatedNode:
    """A node while nominated pods are subtracted from what is available on it."""

    def __init__(self, state_node: StateNode, claim: NodeClaim, now: datetime) -> None:
        self.initial = state_node
        self.shape = _shape(claim)
        self.initialized_for = _initialized_for(claim, now)
        self.pods: list[Pod] = []
        self._available = dict(state_node.available)

    @property
    def is_open(self) -> bool:
        """Whether pods may still be nominated for it."""
        return self.initialized_for is None or self.initialized_for < NOMINATION_WINDOW

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
        return replace(self.initial, available=self._available, pods=pods, ports=ports)


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
    """The NodeClaims whose planned pods may still come, the youngest first, each with its node."""
    claims = [
        claim
        for claim in snapshot.node_claims
        if claim.metadata.annotations.get(names.PLANNED_PODS)
        and claim.metadata.deletion_timestamp is None
        and (_age(claim, snapshot.taken_at) < DEFERRAL_TIMEOUT or _initialized_for(claim, snapshot.taken_at) is None)
    ]
    if not claims:
        return
    nodes = {node.name: node for node in state_nodes.nodes}
    name_by_provider_id = {n.spec.provider_id: n.metadata.name for n in snapshot.nodes if n.spec.provider_id}
    for claim in sorted(claims, key=lambda c: (_age(c, snapshot.taken_at), c.name)):
        name = claim.status.node_name or name_by_provider_id.get(claim.status.provider_id, "")
        node = nodes.get(name) or nodes.get(claim.name)
        if node is not None:
            yield claim, node


def _initialized_for(claim: NodeClaim, now: datetime) -> timedelta | None:
    """How long its node has been initialized; None if it isn't."""
    initialized = condition(claim.status.conditions, nodeclaim.INITIALIZED)
    if initialized is None or initialized.status != "True":
        return None
    since = initialized.last_transition_time
    return now - since if since is not None else timedelta.max


def _age(claim: NodeClaim, now: datetime) -> timedelta:
    created = claim.metadata.creation_timestamp
    return now - created if created is not None else timedelta()


def _is_younger(pod: Pod, claim: NodeClaim) -> bool:
    """Whether the pod was created after the NodeClaim: another pod of the same name was planned there."""
    pod_created, claim_created = pod.metadata.creation_timestamp, claim.metadata.creation_timestamp
    return pod_created is not None and claim_created is not None and pod_created > claim_created


def _shape(claim: NodeClaim) -> bytes:
    """Equal for NodeClaims that differ at most in instance type: their pods may take each other's capacity."""
    requirements = [r for r in claim.spec.requirements if names.normalize_key(r.key) != names.INSTANCE_TYPE]
    pool = claim.metadata.labels.get(names.NODEPOOL, "")
    return msgspec.json.encode([pool, requirements, claim.spec.taints])
