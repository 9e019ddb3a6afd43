"""A node of a static NodePool is kept, unless it is surplus, expired or drifted."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.e2e.cli.conftest import Shell

POOL: dict[str, Any] = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "fixed"},
    "spec": {
        "replicas": 1,
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [
                    {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]},
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                ],
                "expireAfter": "10m",
            }
        },
        "disruption": {"budgets": [{"nodes": "0"}]},
    },
}


def test_it_is_kept_until_it_expires_and_then_by_its_budgets(shell: Shell) -> None:
    world = shell.world
    world.apply("cli/demo/manifests/v1.yaml")
    world.apply(POOL)
    world.run_until(lambda: len(world.nodes("fixed")) == 1)
    world.run_until_idle()
    name = world.nodes("fixed")[0]["metadata"]["name"]
    fresh = shell.tenon("explain", "node", name)
    assert fresh.lines[0] == f"Node {name} is kept"
    assert "static (replicas 1)" in fresh.lines[1]
    world.run_for(timedelta(minutes=12))
    old = shell.tenon("explain", "node", name)
    assert old.lines[0] == f"Node {name} is kept"
    assert "budgets for Expired" in old.lines[1]
