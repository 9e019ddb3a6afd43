"""What `tenon demo` was asked for and did not give: it says so with the reason, and its exit code is 1."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from local.world import sample_objects
from tests.e2e.test_demo_command import demo

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def huge(tmp_path: Path) -> str:
    """A manifest with a Deployment that no instance type has room for."""
    path = tmp_path / "huge.yaml"
    path.write_text(yaml.safe_dump(sample_objects.deployment("huge", 2, {"cpu": "5000"})))
    return str(path)


def test_a_provisioner_and_a_nodepool_of_one_name_launch() -> None:
    manifests = ["--manifest", "spot-default.yaml", "--manifest", "v1.yaml"]
    done = demo(*manifests, "--scale", "inflate=5", "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["pods_scheduled"] == 5
    superseded = {(c["kind"], c["name"]): c["message"] for c in result["conditions"]}
    assert superseded.keys() == {("Provisioner", "default"), ("AWSNodeTemplate", "default")}
    assert "is also the name of NodePool default, which is used instead" in superseded["Provisioner", "default"]


def test_pods_that_stay_pending_are_shown_with_their_reason(huge: str) -> None:
    arguments = ["--manifest", "spot-default.yaml", "--manifest", huge, "--scale", "huge=2,0"]
    done = demo(*arguments)
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if "pending: " in line]
    assert line.startswith("huge 2 → 2: pending: huge-")
    assert "none has enough cpu: requested 5000" in line
    assert demo(*arguments, "--allow-pending").returncode == 0


def test_a_class_that_is_not_ready_is_shown_with_its_reason(tmp_path: Path, huge: str) -> None:
    selectors = {
        "subnetSelectorTerms": [{"tags": {"no": "such"}}],
        "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
    }
    node_class = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {"role": "TenonNodeRole-demo", "amiSelectorTerms": [{"alias": "al2023@latest"}], **selectors},
    }
    path = tmp_path / "class.yaml"
    path.write_text(yaml.safe_dump_all([sample_objects.node_pool({}), node_class]))
    done = demo("--manifest", str(path), "--manifest", huge)
    assert done.returncode == 1
    assert "EC2NodeClass default: SubnetsReady is False: no subnet matches" in done.stdout
