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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty: it has no object"),
        (b"---\n---\n", "is empty: it has no object"),
        (b"kind: List\napiVersion: v1\nitems: []\n", "is empty: it has no object"),
        (b"a text", "object 1 is no Kubernetes object"),
        (b"- 1\n- 2\n", "object 1 is no Kubernetes object"),
        (b"kind: NodePool\n", "has no apiVersion and kind"),
        (b"apiVersion: v1\nkind: Pod\nmetadata: web\n", "has no metadata.name"),
        (b"a: [", "neither JSON nor YAML"),
        (b"\xff\x00\x81", "not UTF-8 text"),
    ],
)
def test_manifests_that_are_none_are_refused_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_bytes(content)
    done = demo("--manifest", str(path))
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("option", ["--record", "--report"])
def test_files_that_cannot_be_written_are_refused_before_the_run(tmp_path: Path, option: str) -> None:
    done = demo(option, str(tmp_path / "missing" / "file"))
    assert done.returncode == 2
    assert "No such file or directory" in done.stderr
    assert "applied" not in done.stdout
