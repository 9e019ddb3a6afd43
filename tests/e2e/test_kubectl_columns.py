"""``kubectl get nodepools,nodeclaims -o wide``, by the real kubectl, shows the state of pools and claims in columns."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from local.world import World

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed on this machine")

DISCOVERY = [{"tags": {"karpenter.sh/discovery": "demo"}}]
MANIFESTS = [
    {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {
            "amiFamily": "AL2023",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "instanceProfile": "KarpenterInstanceProfile",
            "subnetSelectorTerms": DISCOVERY,
            "securityGroupSelectorTerms": DISCOVERY,
        },
    },
    {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "web"},
        "spec": {
            "weight": 7,
            "template": {
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}],
                }
            },
        },
    },
    {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
            },
        },
    },
]


def wide(world: World, folder: Path, kind: str) -> list[dict[str, str]]:
    """The rows that kubectl prints of a kind, by column."""
    config = folder / "kubeconfig"
    config.write_text(world.kubectl_config())
    environ = {"KUBECONFIG": str(config), "HOME": str(folder), "PATH": os.environ["PATH"]}
    command = ["kubectl", "get", kind, "-o", "wide"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    head, *lines = done.stdout.splitlines()
    starts = [column.span() for column in re.finditer(r"\S+\s*", head)]
    rows = [{head[a:b].strip(): line[a : None if b == len(head) else b].strip() for a, b in starts} for line in lines]
    return [row for row in rows if row["NODECLASS"] == "default" and row["NAME"].startswith("web")]


@pytest.mark.flow
def test_columns_show_the_state_of_pools_and_claims(world: World, tmp_path: Path) -> None:
    world.apply(MANIFESTS)
    world.run_until(lambda: bool(world.claims()) and bool(world.instances()))
    assert {row["READY"] for row in wide(world, tmp_path, "nodeclaims")} == {"Unknown"}

    world.run_until_idle()
    nodes = {n["metadata"]["name"]: n for n in world.nodes()}
    claims = {c["metadata"]["name"]: c for c in world.claims()}
    rows = wide(world, tmp_path, "nodeclaims")
    assert {row["NAME"] for row in rows} == claims.keys() != set()
    for row in rows:
        node, claim = nodes[row["NODE"]], claims[row["NAME"]]
        labels = node["metadata"]["labels"]
        assert row["TYPE"] == labels["node.kubernetes.io/instance-type"]
        assert (row["CAPACITY"], row["ZONE"]) == ("spot", labels["topology.kubernetes.io/zone"])
        assert (row["READY"], row["ID"]) == ("True", node["spec"]["providerID"])
        assert row["IMAGEID"] == claim["status"]["imageID"] != ""
        assert (row["NODEPOOL"], row["NODECLASS"]) == ("web", "default")

    (row,) = wide(world, tmp_path, "nodepools")
    pool = world.store.get(world.store.kind("karpenter.sh/v1", "NodePool"), "web")
    held = pool["status"]["resources"]
    assert (row["NAME"], row["NODECLASS"], row["WEIGHT"]) == ("web", "default", "7")
    assert (row["NODES"], row["READY"]) == (str(len(nodes)), "True")
    assert (row["CPU"], row["MEMORY"]) == (held["cpu"], held["memory"])
