"""Pods, nodes and NodeClaims of a simulated cluster as Kubernetes' objects, as Tenon's functions read them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from bench.month.catalog import GPU, GPU_POOL, GPU_TAINT, GPU_TOLERATION, START
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.containers import Container, ResourceRequirements
from shared.api.kubernetes import (
    Node,
    NodeSpec,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    TopologySpreadConstraint,
)
from shared.api.meta import Condition, LabelSelector, ObjectMeta, OwnerReference
from shared.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClaimStatus
from shared.api.quantity import format_resources
from shared.base.struct import with_fields
from shared.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from bench.month.catalog import Catalog
    from bench.month.load_trace import TracePod
    from bench.month.simulated_cluster import SimulatedCluster
    from bench.month.simulated_objects import SimulatedNode, SimulatedPod
    from shared.instance_types.instance_type import InstanceType

_NAMESPACE = "default"
_WAITING = PodStatus(
    phase="Pending", conditions=[Condition(type="PodScheduled", status="False", reason="Unschedulable")]
)


class ClusterObjects:
    """The objects of one cluster, kept while they don't change."""

    def __init__(self, *, eviction_cost: float = 1.0) -> None:
        """``eviction_cost`` of each pod, by its annotation ``karpenter.sh/disruption-cost``."""
        self._annotations = _pod_annotations(eviction_cost)
        self._pods: dict[str, tuple[str, int, Pod]] = {}
        self._nodes: dict[str, tuple[tuple[object, ...], NodeClaim, Node]] = {}

    def snapshot(
        self, cluster: SimulatedCluster, nodes: Iterable[SimulatedNode], pods: Iterable[SimulatedPod]
    ) -> Snapshot:
        """These nodes and pods."""
        self._forget(cluster)
        pairs = [self._node(cluster.catalog, n) for n in nodes]
        return Snapshot(
            taken_at=_time(cluster.now),
            pods=tuple(self._pod(p) for p in pods),
            nodes=tuple(node for _, node in pairs),
            node_claims=tuple(claim for claim, _ in pairs),
            node_pools=cluster.catalog.pools,
        )

    def _forget(self, cluster: SimulatedCluster) -> None:
        """Drop objects that are gone, now and then."""
        if len(self._pods) > 2 * len(cluster.pods) + 1000:
            self._pods = {name: kept for name, kept in self._pods.items() if name in cluster.pods}
            self._nodes = {name: kept for name, kept in self._nodes.items() if name in cluster.nodes}

    def _pod(self, pod: SimulatedPod) -> Pod:
        name = pod.trace.name
        kept = self._pods.get(name)
        if kept is not None and kept[:2] == (pod.node, pod.since):
            return kept[2]
        new = _pending(pod.trace, self._annotations) if kept is None else kept[2]
        status = _WAITING
        if pod.node:
            status = PodStatus(phase="Running", start_time=_time(pod.since))
        new = with_fields(new, spec=with_fields(new.spec, node_name=pod.node), status=status)
        self._pods[name] = (pod.node, pod.since, new)
        return new

    def _node(self, catalog: Catalog, node: SimulatedNode) -> tuple[NodeClaim, Node]:
        key = (node.is_ready, node.is_leaving, node.empty_since)
        kept = self._nodes.get(node.name)
        if kept is None or kept[0] != key:
            kept = (key, *_node_objects(catalog, node))
            self._nodes[node.name] = kept
        return kept[1], kept[2]


def _time(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def _pod_annotations(eviction_cost: float) -> dict[str, str]:
    if eviction_cost == 1:
        return {}
    return {names.POD_DISRUPTION_COST: str(round((eviction_cost - 1) * 2**27))}


def _pending(trace: TracePod, annotations: dict[str, str]) -> Pod:
    """The pod without a node. A pod without a workload belongs to a Job of its own."""
    kind, _, rest = (trace.workload or f"Job/{trace.name}").partition("/")
    workload, _, revision = rest.partition("/")
    labels = {"app": workload}
    owner = workload
    if revision:
        kind, owner = "ReplicaSet", f"{workload}-{revision}"
        labels["pod-template-hash"] = revision
    requests: dict[str, str | int | float] = {"cpu": f"{trace.cpu}m", "memory": f"{trace.memory}Mi"}
    if trace.gpus:
        requests[GPU] = trace.gpus
    spread = TopologySpreadConstraint(
        topology_key=names.ZONE, max_skew=trace.zone_spread, label_selector=LabelSelector(match_labels=labels)
    )
    return Pod(
        metadata=ObjectMeta(
            name=trace.name,
            namespace=_NAMESPACE,
            uid=trace.name,
            owner_references=[
                OwnerReference(api_version="v1", kind=kind, name=owner, uid=f"{kind}/{owner}", controller=True)
            ],
            labels=labels,
            annotations=annotations,
            creation_timestamp=_time(trace.created),
        ),
        spec=PodSpec(
            containers=[Container(resources=ResourceRequirements(requests=requests))],
            priority=trace.priority,
            tolerations=[GPU_TOLERATION] if trace.gpus else [],
            topology_spread_constraints=[spread] if trace.zone_spread else [],
        ),
    )


def _node_objects(catalog: Catalog, node: SimulatedNode) -> tuple[NodeClaim, Node]:
    """A NodeClaim and its node; they are initialized once the node is ready."""
    offerings = catalog.offerings[node.pool]
    type_ = offerings.types[offerings.row[node.instance_type]]
    labels = _labels(type_, node)
    taints = [GPU_TAINT] if node.pool == GPU_POOL else []
    provider = f"aws:///{node.zone}/i-{node.name}"
    created = _time(node.launched)
    capacity: dict[str, str | int | float] = {**format_resources(type_.capacity)}
    allocatable: dict[str, str | int | float] = {**format_resources(type_.allocatable)}
    claim = NodeClaim(
        metadata=ObjectMeta(
            name=node.name,
            uid=node.name,
            labels=labels,
            creation_timestamp=created,
            annotations={
                **({names.REPLACES: "earlier"} if node.is_replacement else {}),
                **({names.EXPECTED_PODS: str(node.expected)} if node.expected else {}),
            },
        ),
        spec=NodeClaimSpec(expire_after="Never", taints=taints),
        status=NodeClaimStatus(
            node_name=node.name,
            provider_id=provider,
            conditions=list(_claim_conditions(node)),
            capacity=capacity,
            allocatable=allocatable,
        ),
    )
    ready = Condition(type="Ready", status="True" if node.is_ready else "False")
    return claim, Node(
        metadata=ObjectMeta(name=node.name, labels=labels, creation_timestamp=created),
        spec=NodeSpec(provider_id=provider, taints=taints),
        status=NodeStatus(allocatable=allocatable, capacity=capacity, conditions=[ready]),
    )


def _labels(type_: InstanceType, node: SimulatedNode) -> dict[str, str]:
    labels = {
        **type_.labels,
        names.NODEPOOL: node.pool,
        names.ZONE: node.zone,
        names.CAPACITY_TYPE: node.capacity_type,
        names.HOSTNAME: node.name,
    }
    return labels | ({names.INITIALIZED: "true", names.REGISTERED: "true"} if node.is_ready else {})


def _claim_conditions(node: SimulatedNode) -> Iterator[Condition]:
    if node.is_ready:
        yield _condition(nodeclaim.INITIALIZED, node.initialized)
    if node.empty_since is not None:
        yield _condition(nodeclaim.EMPTY, node.empty_since)
    if node.is_leaving:
        yield _condition(nodeclaim.DISRUPTION_REASON, node.launched)


def _condition(type_: str, since: int) -> Condition:
    return Condition(type=type_, status="True", last_transition_time=_time(since))
