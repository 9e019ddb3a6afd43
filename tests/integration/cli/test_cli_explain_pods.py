"""`tenon explain pod` prints the reason first: one case for each reason why a pod is unschedulable."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.cli.command import CommandResult

ZONES = ("us-east-1a", "us-east-1b")


def machine(name: str, cpu: int, *, available: bool = True, **more: str) -> dict[str, Any]:
    return {
        "name": name,
        "arch": "amd64",
        "os": "linux",
        "capacity": {"cpu": str(cpu), "memory": f"{cpu * 4}Gi", "pods": "58", **more},
        "overhead": {"cpu": "100m", "memory": "500Mi"},
        "offerings": [
            {"zone": z, "capacityType": kind, "price": cpu * price, "available": available}
            for z in ZONES
            for kind, price in (("spot", 0.02), ("on-demand", 0.05))
        ],
    }


def pool(name: str = "default", *, limits: dict[str, str] | None = None, taint: str = "") -> dict[str, Any]:
    taints = [{"key": taint, "value": "yes", "effect": "NoSchedule"}] if taint else []
    requirements = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]}]
    ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {"spec": {"nodeClassRef": ref, "requirements": requirements, "taints": taints}},
            "limits": limits or {},
        },
    }


def pod(*, requests: dict[str, str] | None = None, volumes: list[Any] | None = None, **spec: Any) -> dict[str, Any]:
    container_requests = {"cpu": "500m"} if requests is None else requests
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": container_requests}}],
            "volumes": volumes or [],
            **spec,
        },
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
        },
    }


def volume_in(zone: str) -> list[dict[str, Any]]:
    term = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "shop"},
            "spec": {"volumeName": "pv-1"},
            "status": {"phase": "Bound"},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "pv-1"},
            "spec": {
                "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
            },
        },
    ]


def affinity_to(app: str) -> dict[str, Any]:
    term = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


TYPES = [machine("m5.large", 2), machine("m5.xlarge", 4)]

CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]], str, list[str], str]] = {
    "resources": (
        pod(requests={"cpu": "64", "memory": "1Gi"}), [pool()], TYPES,
        "resources", ["cpu", "requested 64", "m5.xlarge with 3900m"], "with cpu 3900m it would get a new m5.xlarge",
    ),
    "arch": (
        pod(nodeSelector={"kubernetes.io/arch": "riscv64"}), [pool()], TYPES,
        "arch", ["kubernetes.io/arch", "riscv64"], "without kubernetes.io/arch=riscv64 it would get",
    ),
    "zone of its volume": (
        pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]),
        [pool(), *volume_in("us-east-1f")], TYPES,
        "volumes", ["volume data", "us-east-1f"], "without its volume data it would get",
    ),
    "taint": (
        pod(), [pool(taint="dedicated")], TYPES,
        "taints", ["did not tolerate", "dedicated=yes:NoSchedule"], "with a toleration it would get",
    ),
    "affinity to a missing app": (
        pod(affinity=affinity_to("cache")), [pool()], TYPES,
        "affinity", ["affinity not satisfied", "no pod matches app=cache"], "without its affinity to pods",
    ),
    "limits": (
        pod(requests={"cpu": "3"}), [pool(limits={"cpu": "3"})], TYPES,
        "limits", ["cpu 3 left", "smallest instance type for the pod has 4"], "with higher limits it would get",
    ),
    "no capacity": (
        pod(), [pool()], [machine("m5.large", 2, available=False), machine("m5.xlarge", 4, available=False)],
        "capacity", ["EC2 has no capacity for any suitable offering", "8 of 8 offerings"], "with capacity it would get",
    ),
    "pod-eni": (
        pod(requests={"cpu": "1", "vpc.amazonaws.com/pod-eni": "1"}), [pool()], TYPES,
        "vpc.amazonaws.com/pod-eni", ["none has vpc.amazonaws.com/pod-eni"], "without vpc.amazonaws.com/pod-eni 1",
    ),
    "unknown label": (
        pod(nodeSelector={"team": "a"}), [pool()], TYPES,
        "label", ["label team has no known values"], "without team=a it would get",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_reason_comes_first_and_then_the_nearest_match(
    case: str, tmp_path: Path, tenon: Callable[..., CommandResult]
) -> None:
    pending, objects, types, criterion, words, nearest = CASES[case]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"objects": [pending, *objects], "instanceTypes": types}))
    result = tenon("explain", "pod", "web", "-n", "shop", "-f", str(file))
    assert result.code == 0, result.err
    assert result.lines[0] == "Pod shop/web is unschedulable"
    for word in words:
        assert word in result.lines[1]
    assert nearest in result.lines[2]
    plain = tenon("explain", "pod/shop/web", "-f", str(file), "--json").json
    assert plain["criterion"] == criterion
    failed = [c["what"] for s in plain["checks"] for c in s["checks"] if c["ok"] is False]
    assert failed
    assert plain["nearest"]


def test_of_several_nodepools_the_nearest_comes_first(tmp_path: Path, tenon: Callable[..., CommandResult]) -> None:
    pending = pod(nodeSelector={"kubernetes.io/arch": "riscv64"})
    file = tmp_path / "cluster.json"
    pools = [pool("a", taint="dedicated"), pool("b")]
    file.write_text(json.dumps({"objects": [pending, *pools], "instanceTypes": TYPES}))
    result = tenon("explain", "pod", "shop/web", "-f", str(file))
    assert result.lines[1].startswith("  NodePool b (the nearest of 2): ")
    assert result.out.index("NodePool b\n") < result.out.index("NodePool a\n")


def requiring(name: str, key: str, *values: str, **options: Any) -> dict[str, Any]:
    node_pool = pool(name, **options)
    node_pool["spec"]["template"]["spec"]["requirements"].append({"key": key, "operator": "In", "values": list(values)})
    return node_pool


TYPE = "node.kubernetes.io/instance-type"
NEAREST: dict[str, tuple[dict[str, str], list[dict[str, Any]], str]] = {
    "the larger instance types": (
        {"cpu": "64"},
        [requiring("a", TYPE, "m5.large"), requiring("b", TYPE, "m5.xlarge"), requiring("c", TYPE, "m5.large")],
        "NodePool b (the nearest of 3): ",
    ),
    "limits rather than too small types": (
        {"cpu": "3"},
        [requiring("a", TYPE, "m5.large"), requiring("b", TYPE, "m5.xlarge", limits={"cpu": "3"})],
        "NodePool b (the nearest of 2): exceeds its limits",
    ),
    "limits rather than a taint": (
        {"cpu": "3"},
        [pool("a", taint="dedicated"), pool("b", limits={"cpu": "3"})],
        "NodePool b (the nearest of 2): exceeds its limits",
    ),
    "the GPU NodePool whose taint isn't tolerated rather than one without GPUs": (
        {"nvidia.com/gpu": "1"},
        [requiring("a", TYPE, "m5.large"), requiring("b", TYPE, "g5.large", taint="nvidia.com/gpu")],
        "NodePool b (the nearest of 2): did not tolerate taint nvidia.com/gpu",
    ),
    "a resource that is short rather than missing": (
        {"nvidia.com/gpu": "4"},
        [requiring("a", TYPE, "m5.large"), requiring("b", TYPE, "g5.large")],
        "NodePool b (the nearest of 2): ",
    ),
}


@pytest.mark.parametrize("case", NEAREST)
def test_of_nodepools_that_fail_as_many_checks_the_nearest_is_named(
    case: str, tmp_path: Path, tenon: Callable[..., CommandResult]
) -> None:
    amounts, pools, reason = NEAREST[case]
    file = tmp_path / "cluster.json"
    types = [*TYPES, machine("g5.large", 2, available=True, **{"nvidia.com/gpu": "1"})]
    file.write_text(json.dumps({"objects": [pod(requests=amounts), *pools], "instanceTypes": types}))
    result = tenon("explain", "pod", "shop/web", "-f", str(file))
    assert result.lines[1].startswith(f"  {reason}"), result.out


def explained(tmp_path: Path, tenon: Callable[..., CommandResult], *objects: Any, types: Any = TYPES) -> CommandResult:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"objects": list(objects), "instanceTypes": types}))
    return tenon("explain", "pod", "shop/web", "-f", str(file))


def test_the_nodepool_that_a_pod_names_comes_first_whatever_is_in_its_way(
    tmp_path: Path, tenon: Callable[..., CommandResult]
) -> None:
    batch = requiring("batch", TYPE, "m9.unknown", taint="dedicated")
    pending = pod(nodeSelector={"karpenter.sh/nodepool": "batch"})
    result = explained(tmp_path, tenon, pending, pool("a"), batch)
    assert result.lines[1].startswith("  NodePool batch can't launch nodes: "), result.out


def test_the_nodepool_whose_label_and_taint_a_pod_has_comes_first(
    tmp_path: Path, tenon: Callable[..., CommandResult]
) -> None:
    batch = requiring("batch", TYPE, "m5.large", taint="dedicated")
    batch["spec"]["template"]["metadata"] = {"labels": {"team": "batch"}}
    pending = pod(
        requests={"cpu": "64"},
        nodeSelector={"team": "batch", "kubernetes.io/os": "windows"},
        tolerations=[{"key": "dedicated", "operator": "Exists"}],
    )
    result = explained(tmp_path, tenon, pending, pool("a"), batch)
    assert result.lines[1].startswith("  NodePool batch (the nearest of 2): "), result.out


def test_architectures_are_suggested(tmp_path: Path, tenon: Callable[..., CommandResult]) -> None:
    graviton = {**machine("m7g.large", 2), "arch": "arm64"}
    only_amd64 = requiring("default", "kubernetes.io/arch", "amd64")
    result = explained(
        tmp_path, tenon, pod(nodeSelector={"kubernetes.io/arch": "arm64"}), only_amd64, types=[*TYPES, graviton]
    )
    assert "without kubernetes.io/arch=arm64 it would get a new m5.large" in result.out
    assert ", which has kubernetes.io/arch=amd64" in result.out
    assert "if NodePool default allowed kubernetes.io/arch arm64, it would get a new m7g.large" in result.out


@pytest.mark.parametrize(
    ("label", "hint"),
    [
        ("kubernetes.io/arc", "; a typo of kubernetes.io/arch?"),
        ("topology.kubernetes.io/zones", "; a typo of topology.kubernetes.io/zone?"),
        ("capacity-type", "; a typo of karpenter.sh/capacity-type?"),
        ("example.com/teem", "; a typo of example.com/team?"),
        ("example.com/cost-center", ""),
    ],
)
def test_the_label_that_a_key_may_be_a_typo_of_is_named(
    label: str, hint: str, tmp_path: Path, tenon: Callable[..., CommandResult]
) -> None:
    labelled = requiring("default", "example.com/team", "a", "b")
    result = explained(tmp_path, tenon, pod(nodeSelector={label: "a"}), labelled)
    assert f"label {label} has no known values" in result.lines[1]
    assert result.lines[1].endswith(hint or ")")


def test_constraints_that_only_fail_together_have_their_own_criterion(
    tmp_path: Path, tenon: Callable[..., CommandResult]
) -> None:
    big = machine("m5.xlarge", 4)
    big["offerings"] = [o for o in big["offerings"] if o["zone"] == "us-east-1a"]
    pending = pod(requests={"cpu": "3"}, nodeSelector={"topology.kubernetes.io/zone": "us-east-1b"})
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"objects": [pending, pool()], "instanceTypes": [machine("m5.large", 2), big]}))
    plain = tenon("explain", "pod/shop/web", "-f", str(file), "--json").json
    assert plain["criterion"] == "together"
    assert any("without topology.kubernetes.io/zone=us-east-1b" in line for line in plain["nearest"])
    assert any("without cpu 3" in line for line in plain["nearest"])


def test_a_schedulable_pod_is_explained_with_its_new_node(tmp_path: Path, tenon: Callable[..., CommandResult]) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"objects": [pod(), pool()], "instanceTypes": TYPES}))
    result = tenon("explain", "po", "shop/web", "-f", str(file))
    assert result.lines[0] == "Pod shop/web waits for a new node"
    assert "a new m5.large (spot, us-east-1a, $0.0400/h) of NodePool default" in result.lines[1]


def test_a_gated_pod_a_running_pod_and_a_missing_pod(tmp_path: Path, tenon: Callable[..., CommandResult]) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"objects": [pod(schedulingGates=[{"name": "quota"}]), pool()], "instanceTypes": TYPES}))
    assert "quota" in tenon("explain", "pod", "shop/web", "-f", str(file)).lines[1]
    file.write_text(json.dumps({"objects": [pod(nodeName="n1"), pool()], "instanceTypes": TYPES}))
    assert tenon("explain", "pod", "shop/web", "-f", str(file)).lines[0] == "Pod shop/web is on n1"
    missing = tenon("explain", "pod", "web", "-f", str(file))
    assert missing.code == 2
    assert missing.err == "tenon explain: there is no pod default/web; there is shop/web\n"
