"""docs/getting-started.md and the recipe for GPUs, followed literally, give the nodes that a reader expects."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from local.world import World
from shared.api import labels as names

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parents[2] / "docs"
MINUTE = timedelta(minutes=1)
GPU = "nvidia.com/gpu"


def section(page: str, heading: str) -> str:
    """The text of a page below a heading."""
    text = (DOCS / page).read_text(encoding="utf-8").replace("NAME", "demo")
    return re.split(r"^## ", text.partition(f"\n## {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def manifests(page: str, heading: str) -> list[dict[str, Any]]:
    blocks = re.findall(r"```yaml\n(.*?)```", section(page, heading), re.DOTALL)
    return [document for block in blocks for document in yaml.safe_load_all(block)]


def follow(world: World, folder: Path, heading: str) -> None:
    """Run the commands of kubectl below a heading, but those that watch."""
    config = folder / "kubeconfig"
    config.write_text(world.kubectl_config())
    environ = {"KUBECONFIG": str(config), "HOME": str(folder), "PATH": os.environ["PATH"]}
    (block,) = re.findall(r"```\n(.*?)```", section("getting-started.md", heading), re.DOTALL)
    for line in block.splitlines():
        if line.startswith("kubectl") and not line.endswith("-w"):
            subprocess.run(shlex.split(line), env=environ, check=True, capture_output=True)


def labels(world: World) -> dict[str, dict[str, str]]:
    """Of each node, by name."""
    return {n["metadata"]["name"]: n["metadata"]["labels"] for n in world.nodes()}


def node_of(world: World, pod: str) -> str:
    (match,) = [p for p in world.pods() if p["metadata"]["name"] == pod]
    return str(match["spec"].get("nodeName", ""))


@pytest.fixture
def guide() -> Iterator[World]:
    """A cluster with the guide's first pool."""
    with World(cluster="demo") as world:
        world.apply(manifests("getting-started.md", "The first pool"))
        world.run_for(MINUTE)
        yield world


@pytest.mark.flow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed on this machine")
def test_the_guide_gives_ready_objects_and_amd64_nodes_of_usual_types_on_spot(guide: World, tmp_path: Path) -> None:
    for kind, api_version in (("EC2NodeClass", "karpenter.k8s.aws/v1"), ("NodePool", "karpenter.sh/v1")):
        obj = guide.store.get(guide.store.kind(api_version, kind), "default")
        ready = {c["type"]: c["status"] for c in obj["status"]["conditions"]}
        assert ready["Ready"] == "True", obj["status"]["conditions"]
    follow(guide, tmp_path, "Try it")
    guide.run_for(5 * MINUTE)
    inflate = [p for p in guide.pods() if p["metadata"]["labels"].get("app") == "inflate"]
    assert [p["status"]["phase"] for p in inflate] == ["Running"] * 5
    of = labels(guide)
    for node in of.values():
        assert node["kubernetes.io/arch"] == "amd64"
        assert node[names.CAPACITY_TYPE] == "spot"
        assert node["karpenter.k8s.aws/instance-category"] in {"c", "m", "r"}
        assert int(node["karpenter.k8s.aws/instance-generation"]) > 4
    assert {p["spec"]["nodeName"] for p in inflate} <= of.keys()


@pytest.mark.flow
def test_a_gpu_pod_of_the_recipe_gets_a_tainted_on_demand_node_of_the_gpu_pool_and_others_stay_off(
    guide: World,
) -> None:
    pool, trainer = manifests("tasks.md", "GPUs")
    plain = {**trainer, "metadata": {"name": "plain"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    intolerant = {**trainer, "metadata": {"name": "intolerant"}, "spec": {**trainer["spec"], "tolerations": []}}
    guide.apply([pool, trainer])
    guide.run_until(lambda: bool(node_of(guide, "finetuning")), limit=10 * MINUTE)
    guide.apply([plain, intolerant])
    guide.run_for(5 * MINUTE)
    of, nodes = labels(guide), {n["metadata"]["name"]: n for n in guide.nodes()}
    gpu = node_of(guide, "finetuning")
    assert (of[gpu][names.NODEPOOL], of[gpu][names.CAPACITY_TYPE]) == ("gpu", "on-demand")
    assert of[gpu]["kubernetes.io/arch"] == "amd64"
    assert GPU in {taint["key"] for taint in nodes[gpu]["spec"]["taints"]}
    assert nodes[gpu]["status"]["allocatable"][GPU] != "0"
    assert of[node_of(guide, "plain")][names.NODEPOOL] == "default"
    assert node_of(guide, "intolerant") == ""
    assert [node for node in of.values() if node[names.NODEPOOL] == "default" and GPU in str(node)] == []
