"""The nodes that exist or are on their way, with what is available on them: Karpenter's state nodes.

A NodeClaim without a node, or whose node isn't initialized or reboots, counts with the resources of its status; startup
taints and taints that the cloud provider removes are ignored, as they are gone before pods come. So is Tenon's soft
taint. Labels are columns, so a pod group is evaluated against all nodes at once.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from shared.api import labels as names
from shared.api.dynamic_resources import with_dynamic_resources
from shared.api.kubernetes import Taint
from shared.api.nodeclaim import is_rebooting
from shared.api.pods import is_daemon, is_terminal, is_terminating, mounts_claims, spec_requests
from shared.api.quantity import QuantityError, Resources, add, parse_resources
from shared.api.taints import REBOOTING, is_ephemeral, same_taint, without_soft_taints
from shared.base.struct import Struct, with_fields
from shared.scheduling.rules.attached_volumes import with_missing_drivers
from shared.scheduling.rules.host_ports import host_ports
from shared.scheduling.rules.requirements import RequirementError, ValueSet, certain_labels, parse
from shared.scheduling.rules.volume_topology import EBS_DRIVER, VolumeError
from shared.scheduling.state.daemonsets import DaemonSetPod, daemon_set_pods
from shared.scheduling.state.instance_type_arrays import (
    LabelColumn,
    allowed_in,
    instance_type_arrays,
    label_column,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from shared.api.kubernetes import Node, Pod, PodSpec
    from shared.api.nodeclaim import NodeClaim
    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.rules.host_ports import HostPort
    from shared.scheduling.rules.requirements import Requirements
    from shared.scheduling.rules.volume_topology import MountedVolume, Storage
    from shared.snapshot import Snapshot

    Bools = NDArray[np.bool_]

_encode = msgspec.msgpack.Encoder().encode
CORDON = Taint(key=names.UNSCHEDULABLE_TAINT, effect="NoSchedule")


class StateNode(Struct, kw_only=True, eq=False, dict=True):
    """A node, or a NodeClaim whose node is on its way.

    ``available`` is what its pods and its DaemonSets' pods leave; ``ports`` are the host ports that they take.
    """

    name: str
    node_pool: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    available: Resources
    capacity: Resources
    initialized: bool
    pods: tuple[Pod, ...] = ()
    volume_limits: Mapping[str, int] = {}
    ports: frozenset[HostPort] = frozenset()

    @cached_property
    def pods_with_claims(self) -> tuple[Pod, ...]:
        """Its pods that mount PersistentVolumeClaims."""
        return tuple(pod for pod in self.pods if mounts_claims(pod.spec))

    @cached_property
    def pods_with_anti_affinity(self) -> tuple[Pod, ...]:
        """Its pods with anti-affinity, which repel others."""
        affinities = ((pod, pod.spec.affinity) for pod in self.pods)
        return tuple(pod for pod, affinity in affinities if affinity is not None and affinity.pod_anti_affinity)


class StateNodes(Struct, eq=False):
    """All nodes that pods may be scheduled on, initialized ones first, then by name; and NodePools' usage.

    ``usage`` and ``node_counts`` are by NodePool and include nodes that are leaving, ``leaving`` are these nodes.
    ``mounted_volumes`` are by node, where its CSI drivers limit their number.
    """

    nodes: tuple[StateNode, ...]
    usage: Mapping[str, Resources]
    node_counts: Mapping[str, int]
    leaving: frozenset[str]
    mounted_volumes: Mapping[str, frozenset[MountedVolume]] = {}
    columns: dict[str, LabelColumn] = {}
    masks: dict[tuple[str, ValueSet], Bools] = {}

    def column(self, key: str) -> LabelColumn:
        """The values of a label on all nodes."""
        column = self.columns.get(key)
        if column is None:
            column = self.columns[key] = label_column([node.labels.get(key) for node in self.nodes])
        return column

    def allowed(self, requirements: Requirements) -> Bools:
        """Which nodes the requirements allow."""
        allowed_nodes = np.ones(len(self.nodes), np.bool_)
        for key, allowed in requirements.items():
            mask = self.masks.get((key, allowed))
            if mask is None:
                mask = self.masks[key, allowed] = self.column(key).allowed(allowed)
            allowed_nodes &= mask
        return allowed_nodes


def build_state_nodes(
    snapshot: Snapshot, instance_types: Mapping[str, tuple[InstanceType, ...]], leaving: frozenset[str]
) -> StateNodes:
    """The state of all nodes; those of ``leaving`` or being deleted only count against limits.

    ``instance_types`` by NodePool serve NodeClaims that aren't launched yet, and nodes without a CSINode.
    """
    daemons = daemon_set_pods(snapshot) if snapshot.daemon_sets else ()
    present = snapshot.derive("present_nodes", lambda: _PresentNodes(snapshot, daemons))
    nodes = [p.node for p in present.nodes if not (p.is_leaving or p.is_disrupted) and p.names.isdisjoint(leaving)]
    leaving_nodes = frozenset(p.node.name for p in present.nodes if p.is_leaving or not p.names.isdisjoint(leaving))
    usage, node_counts = dict(present.usage), dict(present.node_counts)
    for claim in present.claims_without_node:
        node = _from_claim(claim, instance_types)
        _count(node, usage, node_counts)
        if claim.metadata.deletion_timestamp is None and claim.name not in leaving:
            nodes.append(present.less_pods(node))
    if snapshot.persistent_volume_claims:
        nodes = [_with_volume_limits(node, instance_types) for node in nodes]
    nodes = _cordoned_in(snapshot.shifted_zones, nodes)
    nodes.sort(key=lambda node: (not node.initialized, node.name))
    return StateNodes(tuple(nodes), usage, node_counts, leaving_nodes)


def _with_volume_limits(node: StateNode, instance_types: Mapping[str, tuple[InstanceType, ...]]) -> StateNode:
    """The node with the volume limits of its instance type, while it has no CSINode."""
    if node.volume_limits or node.initialized:
        return node
    name = node.labels.get(names.INSTANCE_TYPE, "")
    of_type = next((t for t in instance_types.get(node.node_pool, ()) if t.name == name), None)
    if of_type is None or of_type.volumes is None:
        return node
    return with_fields(node, volume_limits={EBS_DRIVER: of_type.volumes})


def _count(node: StateNode, usage: dict[str, Resources], node_counts: dict[str, int]) -> None:
    if node.node_pool:
        usage[node.node_pool] = add(usage.get(node.node_pool, {}), node.capacity)
        node_counts[node.node_pool] = node_counts.get(node.node_pool, 0) + 1


class _PresentNode(Struct, eq=False):
    """A node less its pods; ``names`` are its own and its NodeClaim's.

    ``is_leaving``: it is being deleted. ``is_disrupted``: it has the taint.
    """

    node: StateNode
    names: frozenset[str]
    is_leaving: bool
    is_disrupted: bool


class _PresentNodes:
    """The nodes of a snapshot, their usage, and the NodeClaims that have none yet: the same in all simulations."""

    def __init__(self, snapshot: Snapshot, daemons: Sequence[DaemonSetPod]) -> None:
        self.nodes: list[_PresentNode] = []
        self.usage: dict[str, Resources] = {}
        self.node_counts: dict[str, int] = {}
        self._daemons = daemons
        self._requests: dict[bytes, tuple[Resources, frozenset[HostPort]]] = {}
        self._claim_by_node = {c.status.node_name: c for c in snapshot.node_claims if c.status.node_name}
        self._claim_by_provider_id = {c.status.provider_id: c for c in snapshot.node_claims if c.status.provider_id}
        pods_of = pods_by_node(snapshot)
        limits = _volume_limits(snapshot)
        with_node: set[str] = set()
        for node in snapshot.nodes:
            name = node.metadata.name
            claim = self._claim(node)
            if claim is not None:
                with_node.add(claim.name)
            self._add(node, claim, _from_node(node, claim, pods_of.get(name, ()), limits.get(name, {})))
        self.claims_without_node = [claim for claim in snapshot.node_claims if claim.name not in with_node]

    def _claim(self, node: Node) -> NodeClaim | None:
        return self._claim_by_node.get(node.metadata.name) or self._claim_by_provider_id.get(node.spec.provider_id)

    def _add(self, node: Node, claim: NodeClaim | None, state_node: StateNode) -> None:
        _count(state_node, self.usage, self.node_counts)
        owners = (node,) if claim is None else (node, claim)
        present = _PresentNode(
            node=self.less_pods(state_node),
            names=frozenset(owner.metadata.name for owner in owners),
            is_leaving=any(owner.metadata.deletion_timestamp for owner in owners),
            is_disrupted=any(taint.key == names.DISRUPTED_TAINT for taint in node.spec.taints),
        )
        self.nodes.append(present)

    def less_pods(self, node: StateNode) -> StateNode:
        """The node less its pods, and less DaemonSets' pods that don't run there yet."""
        available = dict(node.available)
        daemon_requests: Resources = {}
        ports: frozenset[HostPort] = frozenset()
        for daemon in self._daemons:
            if daemon.runs_on_node(node.labels, node.taints):
                daemon_requests = add(daemon_requests, daemon.requests)
                ports |= daemon.ports
        running_daemon_requests: Resources = {}
        for pod in node.pods:
            requests, pod_ports = self._requests_of(pod.spec)
            for resource, amount in requests.items():
                available[resource] = available.get(resource, 0) - amount
            if pod_ports:
                ports |= pod_ports
            if daemon_requests and is_daemon(pod):
                running_daemon_requests = add(running_daemon_requests, requests)
        for resource, amount in daemon_requests.items():
            missing = max(0, amount - running_daemon_requests.get(resource, 0))
            if missing:
                available[resource] = available.get(resource, 0) - missing
        return with_fields(node, available=available, ports=ports)

    def _requests_of(self, spec: PodSpec) -> tuple[Resources, frozenset[HostPort]]:
        """The requests and host ports of a running pod; one with invalid requests counts only as a pod."""
        key = _encode((spec.containers, spec.init_containers, spec.overhead, spec.resources))
        requests_and_ports = self._requests.get(key)
        if requests_and_ports is None:
            try:
                requests = spec_requests(spec)
            except QuantityError:
                requests = {"pods": 1}
            requests_and_ports = self._requests[key] = (requests, host_ports(spec))
        return requests_and_ports


def pods_by_node(snapshot: Snapshot) -> Mapping[str, Sequence[Pod]]:
    """The pods by the name of their node, terminal ones too; those without a node by an empty name."""

    def by_node() -> dict[str, list[Pod]]:
        pods: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in snapshot.pods:
            pods[pod.spec.node_name].append(pod)
        return dict(pods)

    return snapshot.derive("pods_by_node", by_node)


def with_pods(state_nodes: StateNodes, pods_by_node: Mapping[str, Sequence[Pod]]) -> StateNodes:
    """The nodes less these pods, by the name of their node; the requests of all must be valid."""

    def less(node: StateNode) -> StateNode:
        pods = pods_by_node.get(node.name, ())
        if not pods:
            return node
        requested = add(*(spec_requests(pod.spec) for pod in pods))
        return with_fields(
            node,
            available={**node.available, **{r: node.available.get(r, 0) - n for r, n in requested.items()}},
            pods=(*node.pods, *pods),
            ports=node.ports.union(*(host_ports(pod.spec) for pod in pods)),
        )

    # columns and masks are the same: no node's labels change
    return with_fields(state_nodes, nodes=tuple(less(node) for node in state_nodes.nodes))


def mounted_volumes(nodes: Iterable[StateNode], storage: Storage) -> dict[str, frozenset[MountedVolume]]:
    """The volumes that the pods of each node mount, for nodes that limit their number.

    Pods whose volumes can't be read are skipped.
    """
    volumes_by_node: dict[str, frozenset[MountedVolume]] = {}
    for node in nodes:
        if not node.volume_limits:
            continue
        mounted: set[MountedVolume] = set()
        for pod in node.pods_with_claims:
            try:
                mounted |= storage.volumes_of(pod).mounted_volumes
            except (VolumeError, RequirementError):
                continue
        volumes_by_node[node.name] = frozenset(mounted)
    return volumes_by_node


def _volume_limits(snapshot: Snapshot) -> Mapping[str, Mapping[str, int]]:
    limits: Mapping[str, Mapping[str, int]] = {
        csi_node.metadata.name: {
            d.name: d.allocatable.count
            for d in csi_node.spec.drivers
            if d.allocatable and d.allocatable.count is not None
        }
        for csi_node in snapshot.csi_nodes
    }
    return with_missing_drivers(limits, snapshot) if snapshot.csi_drivers else limits


def _from_node(node: Node, claim: NodeClaim | None, pods: Iterable[Pod], volume_limits: Mapping[str, int]) -> StateNode:
    """A node with its whole allocatable as available; one that reboots comes back without its terminating pods."""
    comes_back = claim is not None and is_rebooting(claim)
    labels = {names.HOSTNAME: node.metadata.name, **names.normalized(node.metadata.labels)}
    managed = names.NODEPOOL in labels or claim is not None
    initialized = not managed or (labels.get(names.INITIALIZED) == "true" and not comes_back)
    available, capacity = _size(node, claim)
    if not initialized and claim is not None:
        labels = {**_claim_labels(claim), **labels}
        available = {**_quantities(claim.status.allocatable), **{k: v for k, v in available.items() if v}}
        capacity = {**_quantities(claim.status.capacity), **{k: v for k, v in capacity.items() if v}}
    return StateNode(
        name=node.metadata.name,
        node_pool=labels.get(names.NODEPOOL, ""),
        labels=labels,
        taints=tuple(_taints(node, claim, initialized=initialized)),
        available=available,
        capacity=capacity,
        initialized=initialized,
        pods=tuple(p for p in pods if not (is_terminal(p) or (comes_back and is_terminating(p)))),
        volume_limits=volume_limits,
    )


def _cordoned_in(zones: Collection[str], nodes: list[StateNode]) -> list[StateNode]:
    """The nodes; those in the zones are cordoned, as EKS cordons the nodes of a zone that is shifted away."""
    if not zones:
        return nodes
    return [with_fields(n, taints=(*n.taints, CORDON)) if n.labels.get(names.ZONE) in zones else n for n in nodes]


def _size(node: Node, claim: NodeClaim | None) -> tuple[Resources, Resources]:
    """Allocatable and capacity, with what its drivers provide."""
    if claim is not None and names.DYNAMIC_RESOURCES in claim.metadata.annotations:
        node = with_dynamic_resources(node, claim)
    return _quantities(node.status.allocatable), _quantities(node.status.capacity)


def _taints(node: Node, claim: NodeClaim | None, *, initialized: bool) -> list[Taint]:
    """The taints that decide which pods come; those that will be gone before the node is initialized are left out."""
    taints = without_soft_taints(node.spec.taints)
    if node.spec.unschedulable:
        taints.append(CORDON)
    if initialized:
        return taints
    temporary = [REBOOTING, *(claim.spec.startup_taints if claim is not None else ())]
    return [t for t in taints if not is_ephemeral(t) and not any(same_taint(t, s) for s in temporary)]


def _from_claim(claim: NodeClaim, instance_types: Mapping[str, tuple[InstanceType, ...]]) -> StateNode:
    labels = _claim_labels(claim)
    node_pool = labels.get(names.NODEPOOL, "")
    available, capacity = _quantities(claim.status.allocatable), _quantities(claim.status.capacity)
    if not available and node_pool in instance_types:
        available, capacity = _bounds(claim, instance_types[node_pool])
    return StateNode(
        name=claim.name,
        node_pool=node_pool,
        labels={**labels, names.HOSTNAME: claim.name},
        taints=tuple(claim.spec.taints),
        available=available,
        capacity=capacity,
        initialized=False,
    )


def _bounds(claim: NodeClaim, types: tuple[InstanceType, ...]) -> tuple[Resources, Resources]:
    """For a claim that isn't launched yet: the least allocatable and the largest capacity of its instance types."""
    arrays = instance_type_arrays(types)
    try:
        allowed, _ = allowed_in(arrays, parse(claim.spec.requirements))
    except RequirementError:
        return {}, {}
    if not allowed.any():
        return {}, {}
    sizes = (arrays.allocatable[allowed].min(0), arrays.capacity[allowed].max(0))
    least, largest = ({r: v for r, v in zip(arrays.resources, s.tolist(), strict=True) if v} for s in sizes)
    return least, largest


def _claim_labels(claim: NodeClaim) -> dict[str, str]:
    """The labels that the claim's node will have for sure: its own, and requirements with one value."""
    labels = names.normalized(claim.metadata.labels)
    try:
        return {**certain_labels(parse(claim.spec.requirements)), **labels}
    except RequirementError:
        return labels


def _quantities(raw: Mapping[str, str | int | float]) -> Resources:
    """The quantities of a status; none if one of them is invalid."""
    try:
        return parse_resources(raw)
    except QuantityError:
        return {}
