"""PodGroups and ProvisioningRequests of files are planned as in the cluster: all of their pods, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.e2e.conftest import MANIFESTS
from tests.e2e.provisioning_requests import CHECK, pod_template, request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.cli.command import CommandResult

Json = dict[str, Any]
GROUP = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "train"}}


def job(pods: int) -> Json:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    labels = {"scheduling.x-k8s.io/pod-group": "train"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"parallelism": pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec}


@pytest.fixture
def plan(tenon: Callable[..., CommandResult], tmp_path: Path) -> Callable[..., CommandResult]:
    """The plan for a NodePool and these objects, which are its cluster or added to it."""

    def plan(*objects: Json, option: str = "-f") -> CommandResult:
        path = tmp_path / "objects.yaml"
        path.write_text(yaml.safe_dump_all(objects))
        return tenon("plan", "-f", str(MANIFESTS / "v1.yaml"), option, str(path), "--json")

    return plan


@pytest.mark.parametrize("option", ["-f", "--add"])
@pytest.mark.parametrize(("minimum", "pods"), [(3, 3), (4, 0)])
def test_a_gang_is_planned_whole_or_not_at_all(
    plan: Callable[..., CommandResult], minimum: int, pods: int, option: str
) -> None:
    result = plan({**GROUP, "spec": {"minMember": minimum}}, job(3), option=option)
    assert result.code == 0, result.err
    assert sum(len(claim["pods"]) for claim in result.json["launches"]["nodeClaims"]) == pods


@pytest.mark.parametrize("option", ["-f", "--add"])
def test_a_request_gets_room_and_a_check_of_capacity_buys_none(plan: Callable[..., CommandResult], option: str) -> None:
    template = pod_template("train", {"cpu": "1"})
    bought = plan(template, request("train", count=3), option=option)
    assert bought.json["launches"]["nodeClaims"]
    checked = plan(template, request("train", count=3, provisioning_class=CHECK), option=option)
    assert checked.json["launches"]["nodeClaims"] == []
