"""What is there already: nodes, and claims on their way, as places with room.

A claim without a node, or whose node isn't initialized, counts with what its status says it will have, and its startup
taints are passed over: they go before pods come. Labels are columns, so that a class of pods is judged against all
nodes at once. Source: Karpenter's cluster state, docs/facts/karpenter.md section 3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from shared.api import labels as names
from shared.api.kubernetes import Taint
from shared.api.pods import is_daemon, is_terminal, spec_requests
from shared.api.quantity import QuantityError, Resources, add, parse_resources
from shared.api.taints import REPELLING, same_taint, tolerates_all
from shared.scheduling.rules.host_ports import host_ports
from shared.scheduling.rules.requirements import RequirementError, ValueSet, parse
from shared.scheduling.rules.volume_topology import VolumeError
from shared.scheduling.state.offerings import Column, allowed_in, catalog_of, column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from shared.api.kubernetes import Node, Pod, PodSpec
    from shared.api.nodeclaim import NodeClaim
    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.rules.host_ports import HostPort
    from shared.scheduling.rules.requirements import Requirements
    from shared.scheduling.rules.volume_topology import Storage
    from shared.scheduling.state.daemonsets import DaemonSetPod
    from shared.snapshot import Snapshot

    BoolArray = NDArray[np.bool_]

_EPHEMERAL = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.cloudprovider.kubernetes.io/uninitialized",
    names.UNREGISTERED_TAINT,
)
_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, kw_only=True)
class StateNode:
    """A node, or a claim whose node is on its way. ``room`` is what pods and daemons leave of it."""

    name: str
    node_pool: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    available: Resources
    capacity: Resources
    initialized: bool
    pods: tuple[Pod, ...]
    volume_limits: Mapping[str, int]
    ports: frozenset[HostPort] = frozenset()


@dataclass(frozen=True)
class ClusterState:
    """All places, initialized first, then by name, and what the pools have in use.

    ``mounted``: the volumes of the pods that run, by place, where their number is limited.
    """

    nodes: tuple[StateNode, ...]
    usage: Mapping[str, Resources]
    node_counts: Mapping[str, int]
    leaving: frozenset[str]
    mounted_volumes: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    _columns: dict[str, Column] = field(default_factory=dict)
    _masks: dict[tuple[str, ValueSet], BoolArray] = field(default_factory=dict)

    def column(self, key: str) -> Column:
        """The values of one label over all places."""
        found = self._columns.get(key)
        if found is None:
            found = self._columns[key] = column([p.labels.get(key) for p in self.nodes])
        return found

    def allowed(self, requirements: Requirements) -> BoolArray:
        """Which places the requirements allow."""
        found = np.ones(len(self.nodes), np.bool_)
        for key, allowed in requirements.items():
            mask = self._masks.get((key, allowed))
            if mask is None:
                mask = self._masks[key, allowed] = self.column(key).allowed(allowed)
            found &= mask
        return found


def build_cluster_state(
    snapshot: Snapshot,
    instance_types: Mapping[str, tuple[InstanceType, ...]],
    daemons: Sequence[DaemonSetPod],
    leaving: frozenset[str],
) -> ClusterState:
    """Every place that pods may go to; those of ``leaving``, or being deleted, are only counted against limits."""
    claim_of_node = {c.status.node_name: c for c in snapshot.node_claims if c.status.node_name}
    claim_of_provider = {c.status.provider_id: c for c in snapshot.node_claims if c.status.provider_id}
    bound: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        if pod.spec.node_name and not is_terminal(pod):
            bound.setdefault(pod.spec.node_name, []).append(pod)
    limits = {
        c.metadata.name: {
            d.name: d.allocatable.count for d in c.spec.drivers if d.allocatable and d.allocatable.count is not None
        }
        for c in snapshot.csi_nodes
    }
    places: list[StateNode] = []
    gone: set[str] = set()
    used: dict[str, Resources] = {}
    counts: dict[str, int] = {}
    seen: set[str] = set()
    requests: dict[bytes, tuple[Resources, frozenset[HostPort]]] = {}
    for node in snapshot.nodes:
        claim = claim_of_node.get(node.metadata.name) or claim_of_provider.get(node.spec.provider_id or "\0")
        if claim is not None:
            seen.add(claim.name)
        place = _node(node, claim, bound.get(node.metadata.name, ()), limits.get(node.metadata.name, {}))
        _count(place, used, counts)
        away = node.metadata.deletion_timestamp or (claim is not None and claim.metadata.deletion_timestamp)
        marked = node.metadata.name in leaving or (claim is not None and claim.name in leaving)
        if away or marked or any(t.key == names.DISRUPTED_TAINT for t in node.spec.taints):
            if away or marked:
                gone.add(node.metadata.name)
            continue
        places.append(_less_pods(place, daemons, requests))
    for claim in snapshot.node_claims:
        if claim.name in seen:
            continue
        place = _claim(claim, instance_types)
        _count(place, used, counts)
        if claim.metadata.deletion_timestamp is None and claim.name not in leaving:
            places.append(_less_pods(place, daemons, requests))
    places.sort(key=lambda p: (not p.initialized, p.name))
    return ClusterState(tuple(places), used, counts, frozenset(gone))


def mounted_volumes(nodes: Iterable[StateNode], storage: Storage) -> dict[str, frozenset[tuple[str, str]]]:
    """The (driver, volume) pairs that the pods of each node mount, for nodes that limit their number.

    Pods whose volumes can't be read are skipped.
    """
    volumes_by_node: dict[str, frozenset[tuple[str, str]]] = {}
    for node in nodes:
        if not node.volume_limits:
            continue
        mounted: set[tuple[str, str]] = set()
        for pod in node.pods:
            try:
                mounted |= storage.volumes_of(pod).mounted_volumes
            except (VolumeError, RequirementError):
                continue
        volumes_by_node[node.name] = frozenset(mounted)
    return volumes_by_node


def _count(place: StateNode, used: dict[str, Resources], counts: dict[str, int]) -> None:
    if place.node_pool:
        used[place.node_pool] = add(used.get(place.node_pool, {}), place.capacity)
        counts[place.node_pool] = counts.get(place.node_pool, 0) + 1


def _quantities(raw: Mapping[str, str | int | float]) -> Resources:
    """What is readable of a status; a controller wrote it, so a quantity that isn't one counts as nothing there."""
    try:
        return parse_resources(raw)
    except QuantityError:
        return {}


def _canonical(labels: Mapping[str, str]) -> dict[str, str]:
    found = {names.normalize_key(k): v for k, v in labels.items()}
    found.update((k, v) for k, v in labels.items() if names.normalize_key(k) == k)
    return found


def _node(node: Node, claim: NodeClaim | None, pods: Iterable[Pod], limits: Mapping[str, int]) -> StateNode:
    labels = _canonical(node.metadata.labels)
    labels.setdefault(names.HOSTNAME, node.metadata.name)
    managed = names.NODEPOOL in labels or claim is not None
    initialized = not managed or labels.get(names.INITIALIZED) == "true"
    room, capacity = _quantities(node.status.allocatable), _quantities(node.status.capacity)
    taints = list(node.spec.taints)
    if node.spec.unschedulable:
        taints.append(Taint(key=names.UNSCHEDULABLE_TAINT, effect="NoSchedule"))
    if not initialized:
        startup = claim.spec.startup_taints if claim is not None else []
        taints = [t for t in taints if t.key not in _EPHEMERAL and not any(same_taint(t, s) for s in startup)]
        if claim is not None:
            labels = {**_claim_labels(claim), **labels}
            room = {**_quantities(claim.status.allocatable), **{k: v for k, v in room.items() if v}}
            capacity = {**_quantities(claim.status.capacity), **{k: v for k, v in capacity.items() if v}}
    return StateNode(
        name=node.metadata.name,
        node_pool=labels.get(names.NODEPOOL, ""),
        labels=labels,
        taints=tuple(taints),
        available=room,
        capacity=capacity,
        initialized=initialized,
        pods=tuple(pods),
        volume_limits=limits,
    )


def _claim_labels(claim: NodeClaim) -> dict[str, str]:
    found = _canonical(claim.metadata.labels)
    try:
        for key, allowed in parse(claim.spec.requirements).items():
            if allowed.single is not None:
                found.setdefault(key, allowed.single)
    except RequirementError:
        return found
    return found


def _claim(claim: NodeClaim, instance_types: Mapping[str, tuple[InstanceType, ...]]) -> StateNode:
    labels = _claim_labels(claim)
    pool = labels.get(names.NODEPOOL, "")
    room, capacity = _quantities(claim.status.allocatable), _quantities(claim.status.capacity)
    if not room and pool in instance_types:
        room, capacity = _least(claim, instance_types[pool])
    return StateNode(
        name=claim.name,
        node_pool=pool,
        labels={**labels, names.HOSTNAME: claim.name},
        taints=tuple(claim.spec.taints),
        available=room,
        capacity=capacity,
        initialized=False,
        pods=(),
        volume_limits={},
    )


def _least(claim: NodeClaim, types: tuple[InstanceType, ...]) -> tuple[Resources, Resources]:
    """What a claim that isn't launched yet has whichever of its types it becomes, and the most that it may count."""
    catalog = catalog_of(types)
    try:
        mask, _ = allowed_in(catalog, parse(claim.spec.requirements))
    except RequirementError:
        return {}, {}
    if not mask.any():
        return {}, {}
    least, most = catalog.allocatable[mask].min(0).tolist(), catalog.capacity[mask].max(0).tolist()
    return (
        {r: v for r, v in zip(catalog.resources, least, strict=True) if v},
        {r: v for r, v in zip(catalog.resources, most, strict=True) if v},
    )


def _less_pods(
    place: StateNode, daemons: Sequence[DaemonSetPod], known: dict[bytes, tuple[Resources, frozenset[HostPort]]]
) -> StateNode:
    """The place less its pods and the daemons that are still to come; ``known`` remembers what pod specs ask for."""
    room = dict(place.available)
    coming: Resources = {}
    ports: set[HostPort] = set()
    for daemon in daemons:
        if tolerates_all(daemon.tolerations, place.taints, effects=REPELLING) and any(
            all(allowed.has(place.labels.get(key)) for key, allowed in a.items()) for a in daemon.alternatives
        ):
            coming = add(coming, daemon.requests)
            ports |= daemon.ports
    running: Resources = {}
    for pod in place.pods:
        spec = pod.spec
        key = _encode((spec.containers, spec.init_containers, spec.overhead, spec.resources))
        asked = known.get(key)
        if asked is None:
            asked = known[key] = _asked(spec)
        for name, amount in asked[0].items():
            room[name] = room.get(name, 0) - amount
        ports |= asked[1]
        if coming and is_daemon(pod):
            running = add(running, asked[0])
    for name, amount in coming.items():
        left = max(0, amount - running.get(name, 0))
        if left:
            room[name] = room.get(name, 0) - left
    return StateNode(
        name=place.name,
        node_pool=place.node_pool,
        labels=place.labels,
        taints=place.taints,
        available=room,
        capacity=place.capacity,
        initialized=place.initialized,
        pods=place.pods,
        volume_limits=place.volume_limits,
        ports=frozenset(ports),
    )


def _asked(spec: PodSpec) -> tuple[Resources, frozenset[HostPort]]:
    """What a running pod takes of its node; one whose quantities mean nothing takes its place among the pods alone."""
    try:
        return spec_requests(spec), host_ports(spec)
    except QuantityError:
        return {"pods": 1}, host_ports(spec)
