"""Node groups in decisions: pods on groups and NodePools, nodes that are coming, and zones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from shared.api.kubernetes import Node, Pod, Taint
from shared.api.meta import ObjectMeta
from shared.api.nodepool import NodePool
from shared.base.struct import with_fields
from shared.cloud_provider import ResolvedNodePools
from shared.instance_types.instance_type import InstanceType, Offering
from shared.node_groups import group_decision
from shared.node_groups.group_pools import (
    ComingNode,
    GroupPool,
    coming_nodes,
    instance_types,
    next_zones,
    present,
    scale_ups,
)
from shared.node_groups.node_group import GroupInstance, NodeGroup
from shared.node_groups.options import NodeGroupOptions
from shared.node_groups.template_node import TemplateNode
from shared.scheduling.decision import Decision, Problem
from shared.scheduling.scheduler import schedule
from shared.snapshot import Snapshot

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
GIB = 1024**3
ZONES = ("us-east-1a", "us-east-1b")


def group(name: str = "workers", **fields: Any) -> NodeGroup:
    return NodeGroup(name=name, **{"minimum": 0, "maximum": 5, "desired": 0, "zones": ZONES, **fields})


def pool(
    of: NodeGroup | None = None,
    *,
    price: float = 0.1,
    coming: tuple[ComingNode, ...] = (),
    labels: dict[str, str] | None = None,
) -> GroupPool:
    node = TemplateNode(
        instance_type="m5.large",
        allocatable={"cpu": 2000, "memory": 8 * GIB, "pods": 29},
        labels={
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "m5.large",
            **(labels or {}),
        },
        taints=(),
        price=price,
    )
    return GroupPool(group=of or group(), node=node, coming=coming)


def pod(name: str, *, cpu: str = "1500m", **spec: Any) -> Pod:
    raw = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec},
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
        },
    }
    return msgspec.convert(raw, Pod)


def decide(
    pods: list[Pod],
    *pools: GroupPool,
    node_pools: tuple[tuple[NodePool, InstanceType], ...] = (),
    cluster_limits: dict[str, int] | None = None,
) -> Decision:
    snapshot = Snapshot(
        taken_at=NOW,
        pods=tuple(pods),
        node_pools=tuple(p for p, _ in node_pools),
        cluster_limits=cluster_limits or {},
    )
    types = {p.pool_name: instance_types(p) for p in pools} | {p.name: (t,) for p, t in node_pools}
    return schedule(Problem(snapshot=present(snapshot, pools), instance_types=types))


def sizes(decision: Decision, *pools: GroupPool) -> dict[str, int]:
    return {scale_up.group.name: scale_up.desired for scale_up in scale_ups(decision, pools)}


def test_a_group_grows_by_as_many_nodes_as_pods_need() -> None:
    workers = pool(group(desired=1, instances=(instance("i-1"),)))
    decision = decide([pod(str(i)) for i in range(3)], workers)
    assert sizes(decision, workers) == {"workers": 4}
    assert decision.pod_errors == {}


def test_no_group_is_asked_for_more_than_its_maximum() -> None:
    workers = pool(group(maximum=2))
    decision = decide([pod(str(i)) for i in range(3)], workers)
    assert sizes(decision, workers) == {"workers": 2}
    assert len(decision.pod_errors) == 1


def test_pods_wait_for_coming_nodes_instead_of_further_ones() -> None:
    coming = tuple(ComingNode(name=f"workers/{i}") for i in range(2))
    workers = pool(group(desired=2), coming=coming)
    decision = decide([pod(str(i)) for i in range(3)], workers)
    assert sizes(decision, workers) == {"workers": 3}
    assert set(decision.existing_nodes) == {"workers/0", "workers/1"}


def test_the_cheaper_of_two_groups_grows() -> None:
    dear, cheap = pool(group("dear"), price=0.2), pool(group("cheap"))
    assert sizes(decide([pod("a")], dear, cheap), dear, cheap) == {"cheap": 1}


def test_a_group_whose_zones_are_all_shifted_away_does_not_grow() -> None:
    there, elsewhere = pool(group("there", zones=ZONES[:1])), pool(group("elsewhere"), price=0.2)
    snapshot = Snapshot(taken_at=NOW, pods=(pod("a"),))
    launches_nothing = ResolvedNodePools(instance_types={}, not_ready={}, node_classes={})
    for shifted, grown in (({}, {"there": 1}), ({ZONES[0]: NOW}, {"elsewhere": 1})):
        decided = group_decision.decide(
            (there, elsewhere),
            NodeGroupOptions(),
            (),
            with_fields(snapshot, shifted_zones=shifted),
            launches_nothing,
        )
        assert sizes(decided.decision, there, elsewhere) == grown
    only_there = group_decision.decide(
        (there,), NodeGroupOptions(), (), with_fields(snapshot, shifted_zones={ZONES[0]: NOW}), launches_nothing
    )
    (why,) = only_there.decision.pod_errors.values()
    assert "traffic is shifted away from all its zones: us-east-1a" in why.message


def node_pool(*, price: float) -> tuple[NodePool, InstanceType]:
    offered = InstanceType(
        name="c5.large",
        labels={"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"},
        capacity={"cpu": 2000, "memory": 8 * GIB, "pods": 29},
        overhead={},
        offerings=(Offering(zone=ZONES[0], capacity_type="on-demand", price=price),),
    )
    return NodePool(metadata=ObjectMeta(name="default")), offered


@pytest.mark.parametrize(("price", "grown"), [(0.05, {}), (0.3, {"workers": 1})])
def test_of_a_group_and_a_node_pool_the_cheaper_grows(price: float, grown: dict[str, int]) -> None:
    workers = pool()
    decision = decide([pod("a")], workers, node_pools=(node_pool(price=price),))
    assert sizes(decision, workers) == grown
    assert len(decision.new_node_claims) == 1


@pytest.mark.parametrize("limits", [{"nodes": 1}, {"cpu": 3000}])
def test_limits_over_all_nodepools_leave_groups_to_their_own_sizes(limits: dict[str, int]) -> None:
    workers = pool(group(desired=2), coming=tuple(ComingNode(name=f"workers/{i}") for i in range(2)))
    pods = [pod(str(i)) for i in range(5)]
    decision = decide(pods, workers, node_pools=(node_pool(price=0.05),), cluster_limits=limits)
    assert [c.node_pool for c in decision.new_node_claims].count("default") == 1
    assert sizes(decision, workers) == {"workers": 4}
    assert decision.pod_errors == {}


@pytest.mark.parametrize(
    "selector",
    [
        {"karpenter.sh/nodepool": "default"},
        {"karpenter.sh/capacity-type": "on-demand"},
        {"karpenter.k8s.aws/instance-cpu": "2"},
        {"team": "web"},
        {"kubernetes.io/arch": "arm64"},
        {"topology.kubernetes.io/zone": "us-east-1c"},
    ],
)
def test_a_pod_that_requires_what_the_groups_nodes_lack_is_not_for_it(selector: dict[str, str]) -> None:
    workers = pool()
    decision = decide([pod("a", nodeSelector=selector)], workers)
    assert sizes(decision, workers) == {}
    assert set(decision.pod_errors) == {"default/a"}


def test_labels_of_the_group_may_be_required() -> None:
    workers = pool(labels={"team": "web", "eks.amazonaws.com/nodegroup": "web"})
    selector = {"team": "web", "eks.amazonaws.com/nodegroup": "web", "node.kubernetes.io/instance-type": "m5.large"}
    assert sizes(decide([pod("a", nodeSelector=selector)], workers), workers) == {"workers": 1}


def test_a_pod_that_must_not_be_on_a_node_pool_may_be_on_a_group() -> None:
    term = {"matchExpressions": [{"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    workers = pool()
    assert sizes(decide([pod("a", affinity=affinity)], workers), workers) == {"workers": 1}


def test_only_pods_that_tolerate_the_groups_taints_are_for_it() -> None:
    tainted = pool()
    node = with_fields(tainted.node, taints=(Taint(key="dedicated", value="x", effect="NoSchedule"),))
    tainted = with_fields(tainted, node=node)
    tolerant = pod("b", tolerations=[{"key": "dedicated", "operator": "Exists"}])
    decision = decide([pod("a"), tolerant], tainted)
    assert sizes(decision, tainted) == {"workers": 1}
    assert set(decision.pod_errors) == {"default/a"}


def instance(name: str, zone: str = "us-east-1a", state: str = "InService") -> GroupInstance:
    return GroupInstance(id=name, zone=zone, instance_type="m5.large", state=state)


def test_the_zone_with_the_fewest_instances_is_next() -> None:
    assert next_zones(group()) == ZONES
    assert next_zones(group(instances=(instance("i-1"),))) == ("us-east-1b",)


def test_a_zone_that_stays_behind_has_no_capacity() -> None:
    assert next_zones(group(instances=(instance("i-1"), instance("i-2")))) == ("us-east-1a",)


def test_a_zonal_pod_grows_only_a_group_that_is_next_in_its_zone() -> None:
    here = pool(group("here", zones=("us-east-1a",), instances=(instance("i-1"),), desired=1), price=0.3)
    both = pool(group("both", instances=(instance("i-2"),), desired=1))
    zonal = pod("a", nodeSelector={"topology.kubernetes.io/zone": "us-east-1a"})
    assert sizes(decide([zonal], here, both), here, both) == {"here": 2}


def node(name: str, *, ready: bool, age: timedelta = timedelta(minutes=1)) -> Node:
    raw = {
        "metadata": {"name": name, "creationTimestamp": (NOW - age).isoformat()},
        "spec": {"providerID": f"aws:///us-east-1a/{name}"},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }
    return msgspec.convert(raw, Node)


def test_nodes_come_until_they_are_ready() -> None:
    instances = (*tuple(instance(f"i-{i}") for i in range(4)), instance("i-4", state="Terminating:Wait"))
    nodes = [node("i-0", ready=True), node("i-1", ready=False), node("i-2", ready=False, age=timedelta(hours=1))]
    coming = coming_nodes(
        group(desired=5, instances=instances),
        {n.spec.provider_id: n for n in nodes},
        now=NOW,
        within=timedelta(minutes=15),
    )
    assert [c.name for c in coming] == ["workers/i-1", "workers/i-3", "workers/0"]
    snapshot = present(Snapshot(taken_at=NOW, nodes=tuple(nodes)), [pool(coming=coming)])
    assert [n.metadata.name for n in snapshot.nodes] == ["i-0", "i-2"]
    assert [c.name for c in snapshot.node_claims] == [c.name for c in coming]
