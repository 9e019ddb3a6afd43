"""Objects of files are planned for as the API server and the controllers would complete them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from local.world import sample_objects
from shared.api.yaml_documents import writer
from tests.e2e.conftest import MANIFESTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.cli.command import CommandResult

    Simulate = Callable[..., CommandResult]

Json = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
ZONES = ("ap-south-1a", "ap-south-1b", "ap-south-1c")
KATA: Json = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "kata"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "2500m"}},
    "scheduling": {
        "nodeSelector": {"example.com/sandbox": "kata"},
        "tolerations": [{"key": "sandbox", "operator": "Exists", "effect": "NoSchedule"}],
    },
}


def instance_type(name: str, cpu: str) -> Json:
    offerings = [{"zone": zone, "capacityType": "on-demand", "price": float(cpu) / 10} for zone in ZONES]
    capacity = {"cpu": cpu, "memory": "32Gi", "pods": "30"}
    return {"name": name, "capacity": capacity, "overhead": {}, "requirements": [], "offerings": offerings}


def sandbox_pool() -> Json:
    pool = sample_objects.node_pool({})
    pool["spec"]["template"].setdefault("metadata", {})["labels"] = {"example.com/sandbox": "kata"}
    pool["spec"]["template"]["spec"]["taints"] = [{"key": "sandbox", "value": "yes", "effect": "NoSchedule"}]
    return pool


def pod_spec(**spec: Any) -> Json:
    return {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}], **spec}


def pod(name: str, **spec: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_spec(**spec)}


@pytest.fixture
def simulate(tenon: Callable[..., CommandResult], tmp_path: Path) -> Simulate:
    """The result of a simulation with these objects, and instance types of 2, 4 and 16 CPUs."""

    def run(*objects: Json, json: bool = True) -> CommandResult:
        types = [instance_type(name, cpu) for name, cpu in (("t.small", "2"), ("t.medium", "4"), ("t.big", "16"))]
        path = tmp_path / "objects.yaml"
        path.write_text(writer.documents([*objects, {"instanceTypes": types}]))
        return tenon("simulate", str(path), *(["--json"] if json else []))

    return run


def test_a_runtime_class_adds_overhead_node_selector_and_tolerations(simulate: Simulate) -> None:
    result = simulate(KATA, sandbox_pool(), pod("sandboxed", runtimeClassName="kata"))
    (claim,) = result.json["nodeClaims"]
    # one CPU and an overhead of 2.5
    assert claim["instanceTypes"] == ["t.medium", "t.big"]
    assert "RuntimeClass" not in result.err


def test_the_pods_of_daemon_sets_get_it_too(simulate: Simulate) -> None:
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "probe"},
        "spec": {"template": {"spec": pod_spec(runtimeClassName="kata")}},
    }
    claims = simulate(KATA, sandbox_pool(), daemon_set, pod("sandboxed", runtimeClassName="kata")).json["nodeClaims"]
    assert [claim["instanceTypes"] for claim in claims] == [["t.big"]]


def test_a_daemon_set_of_a_cluster_whose_runtime_class_is_not_in_the_files_takes_its_room(simulate: Simulate) -> None:
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "probe", "uid": "7e1c"},
        "spec": {"template": {"spec": pod_spec(runtimeClassName="elsewhere")}},
    }
    claims = simulate(sample_objects.node_pool({}), daemon_set, pod("any")).json["nodeClaims"]
    alone = simulate(sample_objects.node_pool({}), pod("any")).json["nodeClaims"]
    assert claims[0]["requests"]["cpu"] != alone[0]["requests"]["cpu"]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"runtimeClassName": "gvisor"}, 'the API server refuses the pod: RuntimeClass "gvisor" not found'),
        (
            {"runtimeClassName": "kata", "nodeSelector": {"example.com/sandbox": "runc"}},
            "the API server refuses the pod: conflict: runtimeClass.scheduling.nodeSelector[example.com/sandbox]",
        ),
    ],
)
def test_pods_that_the_api_server_would_refuse_are_named(simulate: Simulate, spec: Json, problem: str) -> None:
    result = simulate(KATA, sandbox_pool(), pod("odd", **spec))
    assert result.json["nodeClaims"] == []
    assert problem in result.json["errors"]["default/odd"]


@pytest.mark.parametrize("is_default", [False, True])
def test_each_replica_of_a_stateful_set_has_its_claims(simulate: Simulate, *, is_default: bool) -> None:
    storage_class: Json = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "only-b"},
        "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [
            {"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": [ZONES[1]]}]}
        ],
    }
    claim: Json = {"storageClassName": "only-b", "resources": {"requests": {"storage": "1Gi"}}}
    if is_default:
        storage_class["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
        del claim["storageClassName"]
    stateful_set = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "log", "namespace": "data"},
        "spec": {
            "replicas": 3,
            "template": {"spec": pod_spec(volumes=[{"name": "disk", "emptyDir": {}}])},
            "volumeClaimTemplates": [{"metadata": {"name": "disk"}, "spec": claim}],
        },
    }
    claims = simulate(sample_objects.node_pool({}), storage_class, stateful_set).json["nodeClaims"]
    assert sorted(key for c in claims for key in c["pods"]) == ["data/log-0", "data/log-1", "data/log-2"]
    zones = [r["values"] for c in claims for r in c["requirements"] if r["key"] == ZONE]
    assert zones == [[ZONES[1]]] * len(claims)
    without_class = simulate(sample_objects.node_pool({}), stateful_set)
    assert len(without_class.json["nodeClaims"]) == len(claims)
    assert "StatefulSet data/log: its volumes count as possible in any zone" in without_class.err


def test_a_claim_in_the_files_is_the_one_of_its_replica(simulate: Simulate) -> None:
    stateful_set = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "queue"},
        "spec": {
            "replicas": 2,
            "ordinals": {"start": 5},
            "template": {"spec": pod_spec()},
            "volumeClaimTemplates": [{"metadata": {"name": "disk"}, "spec": {"storageClassName": "any"}}],
        },
    }
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "any"},
        "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [ZONES[2]]}]}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv-6"},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
    }
    bound = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "disk-queue-6"},
        "spec": {"storageClassName": "any", "volumeName": "pv-6"},
    }
    claims = simulate(sample_objects.node_pool({}), storage_class, volume, bound, stateful_set).json["nodeClaims"]
    zones = {
        pod: [r["values"] for r in claim["requirements"] if r["key"] == ZONE]
        for claim in claims
        for pod in claim["pods"]
    }
    assert set(zones) == {"default/queue-5", "default/queue-6"}
    assert zones["default/queue-6"] == [[ZONES[2]]]


def test_static_pools_launch_their_nodes_and_pods_use_them(tenon: Callable[..., CommandResult], tmp_path: Path) -> None:
    pool = sample_objects.node_pool({})
    pool["spec"]["replicas"] = 3
    for key in ("disruption", "weight", "limits"):
        pool["spec"].pop(key, None)
    pool["spec"]["template"]["spec"]["requirements"] = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c5.xlarge"]},
    ]
    pool["metadata"]["name"] = "reserved-seats"
    path = tmp_path / "pool.yaml"
    path.write_text(writer.documents([pool, pod("guest")]))
    files = ("-f", str(MANIFESTS / "v1.yaml"), "-f", str(path))
    claims = tenon("plan", *files, "--json").json["launches"]["nodeClaims"]
    assert [claim["nodePool"] for claim in claims] == ["reserved-seats"] * 3
    assert sorted(key for claim in claims for key in claim["pods"]) == ["default/guest"]
    assert "Would launch 3 nodes" in tenon("plan", *files).out
    pool["spec"]["limits"] = {"cpu": "9"}
    path.write_text(writer.documents([pool]))
    out = tenon("plan", *files).out
    assert "Would launch 2 nodes" in out
    assert "NodePool reserved-seats: 1 of 3 replicas can't be launched" in out


def test_the_pools_of_auto_mode_are_named(simulate: Simulate) -> None:
    pool = sample_objects.node_pool({})
    pool["metadata"]["name"] = "system"
    ref = {"group": "eks.amazonaws.com", "kind": "NodeClass", "name": "own"}
    pool["spec"]["template"]["spec"]["nodeClassRef"] = ref
    node_class = {"apiVersion": "eks.amazonaws.com/v1", "kind": "NodeClass", "metadata": {"name": "own"}, "spec": {}}
    result = simulate(pool, node_class, pod("waiting"), json=False)
    assert "NodePool system: its nodes are launched by EKS Auto Mode, not by Tenon" in result.out
    assert "left out, because only EKS Auto Mode uses them: 1 NodeClass" in result.err


def test_texts_that_other_readers_of_yaml_convert_stay_texts(
    tenon: Callable[..., CommandResult], tmp_path: Path
) -> None:
    path = tmp_path / "objects.yaml"
    rules = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: rules}\ndata: {on: 10:30, operator: =}\n---\n"
    path.write_text(rules + writer.documents([pod("any")]))
    result = tenon("simulate", str(path), "--json")
    assert list(result.json["errors"]) == ["default/any"]
    assert "doesn't depend on them: 1 ConfigMap" in result.err
