"""Limited capacity: as many pods as limits and nodes allow are scheduled, and all rules hold for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
Decide = Callable[[dict[str, Any]], dict[str, Any]]


def spread_rule(app: str, key: str = ZONE) -> dict[str, Any]:
    return {
        "topologySpreadConstraints": [
            {
                "labelSelector": {"matchLabels": {"app": app}},
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "DoNotSchedule",
            }
        ]
    }


def host_affinity_rule(kind: str, app: str) -> dict[str, Any]:
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def placed(decision: dict[str, Any]) -> list[str]:
    return [p for c in decision["nodeClaims"] for p in c["pods"]]


@pytest.mark.parametrize("cpu", [4, 6, 10, 16])
def test_zones_stay_even_when_a_limit_leaves_pods_out(decide: Decide, clusters: ModuleType, cpu: int) -> None:
    raw = clusters.document(
        clusters.pool(limits={"cpu": str(cpu)}), clusters.pods("web", 40, cpu="900m", **spread_rule("web"))
    )
    decision = decide(raw)
    zones = Counter(c["cheapest"]["zone"] for c in decision["nodeClaims"] for _ in c["pods"])
    assert max(zones.values()) - min(zones[z] for z in ("z-a", "z-b", "z-c")) <= 1
    assert len(placed(decision)) >= min(3, cpu // 2)
    assert all("limit" in reason or "maxSkew" in reason for reason in decision["errors"].values())


def test_pods_beyond_the_limit_of_one_nodepool_go_to_the_other_and_stay_even(
    decide: Decide, clusters: ModuleType
) -> None:
    first = clusters.pool("first", limits={"cpu": "8"}, weight=10)
    decision = decide(
        clusters.document(first, clusters.pool("second"), clusters.pods("web", 30, cpu="900m", **spread_rule("web")))
    )
    assert not decision["errors"]
    assert {c["nodePool"] for c in decision["nodeClaims"]} == {"first", "second"}


def test_a_limit_on_nodes_leads_to_larger_nodes(decide: Decide, clusters: ModuleType) -> None:
    decision = decide(clusters.document(clusters.pool(limits={"nodes": "2"}), clusters.pods("web", 40, cpu="700m")))
    assert len(decision["nodeClaims"]) == 2
    assert not decision["errors"]


def test_a_limit_leaves_out_small_pods_rather_than_large_ones(decide: Decide, clusters: ModuleType) -> None:
    big, small = clusters.pods("big", 4, cpu="3", memory="8Gi"), clusters.pods("small", 12, cpu="400m", memory="200Mi")
    decision = decide(clusters.document(clusters.pool(limits={"cpu": "16"}), big, small))
    assert sum(p.startswith("default/big") for p in placed(decision)) == 4
    assert len(placed(decision)) >= 11


def test_nodeclaims_near_a_limit_satisfy_min_values(decide: Decide, clusters: ModuleType) -> None:
    requirement = {"key": "node.kubernetes.io/instance-type", "operator": "Exists", "minValues": 3}
    pool = clusters.pool(requirements=[requirement], limits={"cpu": "24"})
    decision = decide(clusters.document(pool, clusters.pods("web", 30, cpu="900m")))
    assert decision["nodeClaims"]
    assert all(len(c["instanceTypes"]) >= 3 for c in decision["nodeClaims"])


def test_pods_with_affinity_to_pods_of_a_full_node_follow_pending_ones(decide: Decide, clusters: ModuleType) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "n-1",
            "labels": {ZONE: "z-a", HOST: "n-1", "node.kubernetes.io/instance-type": "c1.large"},
        },
        "spec": {},
        "status": {
            "allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"},
            "capacity": {"cpu": "2", "memory": "4Gi", "pods": "10"},
        },
    }
    running = clusters.pods("cache", 1, cpu="1900m", memory="3Gi", nodeName="n-1")
    running[0]["metadata"]["name"] = "cache-running"
    pending = clusters.pods("cache", 2, cpu="1", memory="1Gi")
    clients = clusters.pods("client", 4, cpu="300m", memory="256Mi", **host_affinity_rule("podAffinity", "cache"))
    decision = decide(clusters.document(clusters.pool(), node, running, pending, clients))
    assert not decision["errors"]


def test_pods_of_a_heavier_nodepool_share_nodes_that_others_need(decide: Decide, clusters: ModuleType) -> None:
    taint = {"key": "batch", "effect": "NoSchedule"}
    heavy = clusters.pool("heavy", weight=50, taints=[taint])
    batch = clusters.pods("batch", 3, cpu="100m", memory="64Mi", tolerations=[{"key": "batch", "operator": "Exists"}])
    alone = decide(clusters.document(clusters.pool(), clusters.pods("web", 30)))
    both = decide(clusters.document(clusters.pool(), heavy, clusters.pods("web", 30), batch))
    assert sum(c["cheapest"]["price"] for c in both["nodeClaims"]) < 1.03 * sum(
        c["cheapest"]["price"] for c in alone["nodeClaims"]
    ) + min(c["cheapest"]["price"] for c in both["nodeClaims"])


@pytest.mark.parametrize(("running", "room"), [(0, 3), (2, 1), (3, 0)])
def test_volumes_of_running_pods_count_against_the_nodes_attach_limit(
    decide: Decide, clusters: ModuleType, running: int, room: int
) -> None:
    size = {"cpu": "16", "memory": "64Gi", "pods": "50"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n-1", "labels": {ZONE: "z-a", HOST: "n-1"}},
        "spec": {},
        "status": {"allocatable": size, "capacity": size},
    }
    csi = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": "n-1"},
        "spec": {"drivers": [{"name": "ebs.csi.aws.com", "nodeID": "n-1", "allocatable": {"count": 3}}]},
    }
    storage = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "gp3"},
        "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    pods = clusters.pods("db", 6, cpu="100m", memory="128Mi")
    claims = []
    for i, pod in enumerate(pods):
        name = f"data-{i}"
        pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
        claims.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"storageClassName": "gp3"},
            }
        )
        if i < running:
            pod["spec"]["nodeName"] = "n-1"
    decision = decide(clusters.document(clusters.pool(), node, csi, storage, claims, pods))
    assert len(decision["existingNodes"].get("n-1", [])) == room


def test_min_values_of_several_labels_hold_together_in_sixty_instance_types(
    decide: Decide, clusters: ModuleType
) -> None:
    family, size = "karpenter.k8s.aws/instance-family", "karpenter.k8s.aws/instance-size"
    types = []
    for i in range(120):
        instance_type = clusters.instance_type(f"f{i % 40}.s{i % 45}", 4, 16, 0.1 + i / 1000)
        instance_type["name"] += f"-{i}"
        instance_type["labels"] = {family: f"f{i % 40}", size: f"s{i % 45}"}
        types.append(instance_type)
    requirements = [
        {"key": family, "operator": "Exists", "minValues": 40},
        {"key": size, "operator": "Exists", "minValues": 45},
    ]
    raw = {
        **clusters.document(clusters.pool(requirements=requirements), clusters.pods("web", 5)),
        "instanceTypes": types,
    }
    decision = decide(raw)
    assert not decision["errors"]
    assert all(len(c["instanceTypes"]) <= 60 for c in decision["nodeClaims"])


def test_min_values_do_not_lead_to_much_emptier_nodes(decide: Decide, clusters: ModuleType) -> None:
    types = [clusters.instance_type(f"t{i}.xlarge", 4, 16 + i, 0.2 + i / 100) for i in range(6)]
    requirement = {"key": "node.kubernetes.io/instance-type", "operator": "Exists", "minValues": 4}
    pool = clusters.pool(requirements=[requirement])
    raw = {**clusters.document(pool, clusters.pods("web", 20, cpu="100m", memory="3900Mi")), "instanceTypes": types}
    decision = decide(raw)
    assert not decision["errors"]
    assert len(decision["nodeClaims"]) <= 5
