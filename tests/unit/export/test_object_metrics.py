"""The metrics of single objects: paused NodePools, open breakers, nodes of others, values that can't be parsed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cli.export import families, node_metrics, pod_metrics, pool_metrics
from cli.export.cluster_reader import ClusterState
from functions.lifecycle.statuses.nodepool_status import BREAKER_REASON, PAUSED
from shared.api import labels as names
from shared.api.kubernetes import Node, NodeSpec, NodeStatus, Pod, PodSpec, PodStatus
from shared.api.meta import Condition, ObjectMeta, ObjectRef, OwnerReference, RawQuantities
from shared.api.nodeclaim import NodeClaim, NodeClaimStatus
from shared.api.nodepool import NodePool, NodePoolSpec, NodePoolStatus
from shared.api.pause import Pause
from shared.base.struct import with_fields
from shared.instance_types.catalog import Hardware, InstanceTypeCatalog
from shared.snapshot import InvalidObject, Snapshot
from tests.unit.instance_types.node_overlays import overlay

if TYPE_CHECKING:
    from cli.export.exposition import Sample

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CATALOG = InstanceTypeCatalog(
    region="us-east-1",
    types_at=NOW,
    prices_at=NOW,
    hardware=tuple(
        Hardware(
            name=name, arch="amd64", vcpus=4, memory_mib=8192, interfaces=4, addresses=15, capacity_types=("on-demand",)
        )
        for name in ("c7i.xlarge", "m7i.large")
    ),
    offered={"c7i.xlarge": ("us-east-1a",), "m7i.large": ("us-east-1a",)},
    on_demand={"c7i.xlarge": 0.2, "m7i.large": 0.1},
)
Key = tuple[str, frozenset[tuple[str, str]]]


def by_key(samples: list[Sample]) -> dict[Key, float]:
    values = {(s.family.name, frozenset(s.labels.items())): s.value for s in samples}
    assert len(values) == len(samples)  # no series twice
    return values


def key(family: families.Family, **labels: str) -> Key:
    return family.name, frozenset(labels.items())


def pool(name: str, *, annotations: dict[str, str] | None = None, reason: str = "") -> NodePool:
    conditions = [Condition(type=PAUSED, status="True", reason=reason)] if reason else []
    return NodePool(
        metadata=ObjectMeta(name=name, annotations=annotations or {}),
        spec=NodePoolSpec(limits={"cpu": "1500m", "memory": "2Gi", "nvidia.com/gpu": 8, "amd.com/gpu": 2}),
        status=NodePoolStatus(resources={"cpu": "many"}, conditions=conditions),
    )


def node(name: str, *, claimed: bool = True, instance_type: str = "c7i.xlarge", **status: RawQuantities) -> Node:
    labels = {names.INSTANCE_TYPE: instance_type, names.ZONE: "us-east-1a", names.HOSTNAME: name}
    if claimed:
        labels |= {names.NODEPOOL: "web", names.CAPACITY_TYPE: "on-demand"}
    return Node(
        metadata=ObjectMeta(name=name, labels=labels, creation_timestamp=NOW - timedelta(hours=1)),
        spec=NodeSpec(provider_id=f"aws:///{name}"),
        status=NodeStatus(
            capacity=status.get("capacity", {"cpu": "4", "memory": "8Gi", "pods": "58"}),
            allocatable=status.get("allocatable", {"cpu": "3920m", "memory": "7Gi", "pods": "58"}),
        ),
    )


def test_pauses_and_breakers_are_told_apart() -> None:
    pools = (pool("a"), pool("b", annotations={names.PAUSED: "true"}), pool("c", reason=BREAKER_REASON))
    values = by_key(list(pool_metrics.samples(ClusterState(snapshot=Snapshot(taken_at=NOW, node_pools=pools)))))
    assert [values[key(families.POOL_PAUSED, nodepool=n)] for n in "abc"] == [0, 1, 0]
    assert [values[key(families.POOL_BREAKER, nodepool=n)] for n in "abc"] == [0, 0, 1]
    assert values[key(families.CLUSTER_PAUSED)] == 0
    snapshot = Snapshot(taken_at=NOW, node_pools=pools, pause=Pause())
    values = by_key(list(pool_metrics.samples(ClusterState(snapshot=snapshot))))
    assert values[key(families.CLUSTER_PAUSED)] == 1
    assert values[key(families.POOL_PAUSED, nodepool="a")] == 1
    unknown = pool_metrics.samples(ClusterState(snapshot=snapshot, is_pause_known=False))
    assert not {families.CLUSTER_PAUSED.name, families.POOL_PAUSED.name} & {s.family.name for s in unknown}


def test_limits_are_in_base_units_and_a_bad_quantity_hides_nothing_else() -> None:
    state = ClusterState(snapshot=Snapshot(taken_at=NOW, node_pools=(pool("web"),)))
    values = by_key(list(pool_metrics.samples(state)))
    limits = {
        resource: values[key(families.POOL_LIMIT, nodepool="web", resource_type=resource)]
        for resource in ("cpu", "memory", "nvidia.com/gpu", "amd.com/gpu")
    }
    assert limits == {"cpu": 1.5, "memory": 2 * 2**30, "nvidia.com/gpu": 8, "amd.com/gpu": 2}
    assert not [name for name, _ in values if name == families.POOL_USAGE.name]


def test_objects_that_cannot_be_used_are_counted_by_kind() -> None:
    invalid = tuple(
        InvalidObject(ref=ObjectRef(api_version="v1", kind=kind, name=str(n)), problems=("bad",))
        for n, kind in enumerate(("NodePool", "NodePool", "Provisioner"))
    )
    values = by_key(list(pool_metrics.samples(ClusterState(snapshot=Snapshot(taken_at=NOW, invalid=invalid)))))
    counts = {kind: values[key(families.INVALID, kind=kind)] for kind in ("NodePool", "Provisioner", "Pod")}
    assert counts == {"NodePool": 2, "Provisioner": 1, "Pod": 0}


def test_a_node_has_karpenters_labels_and_empty_nodes_request_nothing() -> None:
    claim = NodeClaim(metadata=ObjectMeta(name="c"), status=NodeClaimStatus(provider_id="aws:///a"))
    bad = node("bad", claimed=False, allocatable={"cpu": "much"})
    snapshot = Snapshot(taken_at=NOW, nodes=(node("a"), node("b", claimed=False), bad), node_claims=(claim,))
    values = by_key(list(node_metrics.samples(snapshot, node_metrics.table(snapshot, None))))
    labels = {"node_name": "a", "managed": "true", "nodepool": "web", "capacity_type": "on-demand"}
    labels |= {"instance_type": "c7i.xlarge", "zone": "us-east-1a"}
    assert values[key(families.NODES_LIFETIME, **labels)] == 3600
    assert values[key(families.NODES_ALLOCATABLE, **labels, resource_type="cpu")] == 3.92
    assert values[key(families.NODES_OVERHEAD, **labels, resource_type="cpu")] == 0.08
    assert values[key(families.NODES_POD_REQUESTS, **labels, resource_type="memory")] == 0
    unmanaged = {"node_name": "b", "managed": "false", "instance_type": "c7i.xlarge", "zone": "us-east-1a"}
    assert values[key(families.NODES_ALLOCATABLE, **unmanaged, resource_type="pods")] == 58
    assert values[key(families.NODE_COUNT)] == 3


def test_nodes_without_a_known_price_are_counted_and_not_free() -> None:
    snapshot = Snapshot(taken_at=NOW, nodes=(node("a"), node("b"), node("c", instance_type="x9.huge")))
    table = node_metrics.table(snapshot, CATALOG)
    values = by_key(list(node_metrics.price_samples(table, CATALOG, all_offerings=False)))
    offering = {"nodepool": "web", "zone": "us-east-1a", "capacity_type": "on-demand"}
    assert values[key(families.COST, **offering, instance_type="c7i.xlarge")] == 0.4
    assert key(families.COST, **offering, instance_type="x9.huge") not in values
    assert values[key(families.UNPRICED)] == 1
    price = {"instance_type": "m7i.large", "zone": "us-east-1a", "capacity_type": "on-demand"}
    assert key(families.OFFERING_PRICE, **price) not in values
    half = overlay("half", (names.NODEPOOL, "In", ["web"]), priceAdjustment="-50%")
    overlaid = node_metrics.table(with_fields(snapshot, node_overlays=(half,)), CATALOG)
    values = by_key(list(node_metrics.price_samples(overlaid, CATALOG, all_offerings=False)))
    assert values[key(families.COST, **offering, instance_type="c7i.xlarge")] == 0.2
    everything = by_key(list(node_metrics.price_samples(table, CATALOG, all_offerings=True)))
    assert everything[key(families.OFFERING_PRICE, **price)] == 0.1


def test_pods_that_have_ended_are_left_out_and_owners_are_paths() -> None:
    owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web-1")
    pods = (
        Pod(metadata=ObjectMeta(name="p", namespace="shop", owner_references=[owner]), spec=PodSpec(node_name="a")),
        Pod(metadata=ObjectMeta(name="q", namespace="shop"), status=PodStatus(phase="Succeeded")),
    )
    snapshot = Snapshot(taken_at=NOW, nodes=(node("a"),), pods=pods)
    samples = list(pod_metrics.samples(snapshot, by_pod=True))
    (state,) = (s for s in samples if s.family is families.PODS_STATE)
    assert state.labels["owner"] == "/apis/apps/v1/namespaces/shop/replicasets/web-1"
    assert (state.labels["nodepool"], state.labels["node"]) == ("web", "a")
    assert [(s.labels, s.value) for s in samples if s.family is families.PODS] == [
        ({"nodepool": "web", "phase": "Pending"}, 1)
    ]
    assert families.PODS_STATE not in {s.family for s in pod_metrics.samples(snapshot, by_pod=False)}
