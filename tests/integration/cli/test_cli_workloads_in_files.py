"""Workloads in files have the pods that they ask for, in `tenon plan` and `tenon simulate`; the rest is named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from local.world import sample_objects
from tests.e2e.conftest import MANIFESTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.cli.command import CommandResult

Json = dict[str, Any]
TEMPLATE: Json = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
}


def workload(kind: str, spec: Json, **metadata: Any) -> Json:
    group = "batch/v1" if kind in {"Job", "CronJob"} else "apps/v1"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "web", **metadata}, "spec": spec}


def replicated(kind: str, **spec: Any) -> Json:
    return workload(kind, {"template": TEMPLATE, **spec})


def cron_job(**spec: Any) -> Json:
    return workload("CronJob", {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": TEMPLATE}}, **spec})


@pytest.fixture
def planned(tenon: Callable[..., CommandResult], tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """How many pods the plan for these objects places, and its text."""

    def plan(*objects: Json) -> tuple[int, str]:
        path = tmp_path / "objects.yaml"
        path.write_text(yaml.safe_dump_all(objects))
        files = ("-f", str(MANIFESTS / "v1.yaml"), "-f", str(path))
        claims = tenon("plan", *files, "--json").json["launches"]["nodeClaims"]
        return sum(len(claim["pods"]) for claim in claims), tenon("plan", *files).out

    return plan


@pytest.mark.parametrize(
    ("obj", "pods"),
    [
        (replicated("Deployment"), 1),
        (replicated("Deployment", replicas=7), 7),
        (replicated("ReplicaSet", replicas=2), 2),
        (replicated("StatefulSet", replicas=3), 3),
        (replicated("Job"), 1),
        (replicated("Job", parallelism=4), 4),
        (replicated("Job", parallelism=4, completions=2), 2),
        (cron_job(), 1),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else str(value),
)
def test_replicas_become_pods(planned: Callable[..., tuple[int, str]], obj: Json, pods: int) -> None:
    assert planned(obj)[0] == pods


@pytest.mark.parametrize(
    ("obj", "reason"),
    [
        (replicated("Deployment", replicas=0), "Deployment default/web: no pods, because it has 0 replicas"),
        (replicated("Job", suspend=True), "Job default/web: no pods, because it is suspended"),
        (replicated("Job", completions=0), "Job default/web: no pods, because its parallelism or completions is 0"),
        (cron_job(suspend=True), "CronJob default/web: no pods, because it is suspended"),
        (workload("Deployment", {"template": TEMPLATE}, uid="1"), "1 workload of a cluster, but no pods"),
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}}, "doesn't depend on them: 1 ConfigMap"),
        (replicated("Deployment", replicas="many"), "ignored: Deployment"),
    ],
)
def test_what_is_left_out_is_said(planned: Callable[..., tuple[int, str]], obj: Json, reason: str) -> None:
    pods, text = planned(obj)
    assert pods == 0
    assert reason in text


def test_workloads_with_resource_claims_are_named_and_the_others_planned(
    planned: Callable[..., tuple[int, str]],
) -> None:
    claims = [{"name": "fpga", "resourceClaimTemplateName": "one-fpga"}]
    with_claims = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "resourceClaims": claims}}
    job = workload("Job", {"template": with_claims, "parallelism": 2}, name="synthesis")
    pods, text = planned(job, replicated("Deployment", replicas=4))
    assert pods == 4
    assert "default/synthesis-0 and 1 more: not supported: spec.resourceClaims" in text


def test_pods_in_the_files_are_counted_once(planned: Callable[..., tuple[int, str]]) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d8f7", "uid": "rs", "controller": True}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-5d8f7-a", "ownerReferences": [owner]},
        "spec": TEMPLATE["spec"],
        "status": {"phase": "Pending"},
    }
    assert planned(replicated("Deployment", replicas=3), pod)[0] == 3


def test_simulate_takes_them_too(tenon: Callable[..., CommandResult], tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    offering = {"zone": "us-east-1a", "capacityType": "on-demand", "price": 0.1, "available": True}
    type_ = {
        "name": "m5.large",
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "29"},
        "overhead": {},
        "requirements": [],
        "offerings": [offering],
    }
    objects = [sample_objects.node_pool({}), replicated("Deployment", replicas=3)]
    path.write_text(json.dumps({"objects": objects, "instanceTypes": [type_]}))
    result = tenon("simulate", str(path), "--json")
    assert [c["pods"] for c in result.json["nodeClaims"]] == [["default/web-0", "default/web-1", "default/web-2"]]
    path.write_text(json.dumps({"objects": objects}))
    assert "note: no file lists instanceTypes" in tenon("simulate", str(path)).err
    path.write_text(json.dumps({"objects": objects, "instanceTypes": []}))
    nothing = tenon("simulate", str(path))
    assert "note: the files list no instance type, so nothing can be launched" in nothing.err


def test_simulate_launches_ec2s_instance_types_where_no_file_lists_any(
    tenon: Callable[..., CommandResult], tmp_path: Path
) -> None:
    scaled = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "over"}}
    files = []
    for name, obj in (
        ("nodepool", sample_objects.node_pool({"karpenter.sh/capacity-type": ["spot"]})),
        ("deployment", replicated("Deployment", replicas=3)),
        ("keda", scaled),
    ):
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(obj))
        files.append(str(path))
    result = tenon("simulate", *files)
    assert result.code == 0
    assert result.lines[-1].startswith("3 pods on ")
    assert result.lines[-1].endswith("0 unschedulable")
    assert "(made-up prices)" in result.lines[-1]
    for note in (
        "note: no file lists instanceTypes: those of EC2 in us-east-1 are used",
        "note: EC2NodeClass default isn't in the files: Amazon Linux 2023 in every zone is assumed",
        "note: left out, because scheduling doesn't depend on them: 1 ScaledObject",
    ):
        assert note in result.err
    claims = tenon("simulate", *files, "--json").json["nodeClaims"]
    assert {claim["cheapest"]["capacityType"] for claim in claims} == {"spot"}


def test_simulate_counts_chunks(tenon: Callable[..., CommandResult], tmp_path: Path) -> None:
    requests = {"requests": {"cpu": "1", "memory": "1Gi"}}
    template = {"spec": {"containers": [{"name": "c", "resources": requests}]}}
    metadata = {"name": "warm", "namespace": "default"}
    document = {
        "objects": [
            sample_objects.node_pool({}),
            {"kind": "PodTemplate", "apiVersion": "v1", "metadata": metadata, "template": template},
            {
                "kind": "CapacityBuffer",
                "apiVersion": "autoscaling.x-k8s.io/v1beta1",
                "metadata": metadata,
                "spec": {"podTemplateRef": {"name": "warm"}, "replicas": 3},
            },
        ],
        "instanceTypes": [
            {
                "name": "m.large",
                "arch": "amd64",
                "os": ["linux"],
                "capacity": {"cpu": "4", "memory": "16Gi", "pods": "58"},
                "offerings": [{"zone": "a", "capacityType": "on-demand", "price": 0.1}],
            }
        ],
    }
    file = tmp_path / "problem.json"
    file.write_text(json.dumps(document))
    result = tenon("simulate", str(file))
    assert "chunks of CapacityBuffers: 3 on new nodes, 0 on existing nodes, 0 unschedulable" in result.out, result.out
