"""`tenon explain node` says that new pods avoid a node, and why."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from local.world import sample_objects

if TYPE_CHECKING:
    from tests.e2e.cli.conftest import Shell

TYPES = {
    "karpenter.sh/capacity-type": ["on-demand"],
    "node.kubernetes.io/instance-type": ["m5.xlarge"],
    "topology.kubernetes.io/zone": ["us-east-1a"],
}


def test_a_node_that_could_go_is_avoided(shell: Shell) -> None:
    world = shell.world
    disruption = {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "1m",
        "budgets": [{"nodes": "0"}],
    }
    world.apply([sample_objects.node_class(world), sample_objects.node_pool(TYPES, disruption=disruption)])
    for i, replicas in enumerate((7, 6)):  # seven fill a node
        world.apply(sample_objects.deployment(f"web-{i}", replicas, {"cpu": "500m", "memory": "256Mi"}))
        world.run_until(lambda n=i: len(world.nodes()) == n + 1 and not world.pending())  # type: ignore[misc]
    world.scale("default", "web-1", 1)
    world.scale("default", "web-0", 5)
    world.run_for(timedelta(minutes=3))
    (stays,), (goes,) = (
        {p["spec"]["nodeName"] for p in world.pods() if name in p["metadata"]["name"]} for name in ("web-0", "web-1")
    )
    text = "avoid the node, by soft taints: its pods would fit on other nodes of the NodePool and zone"
    assert text in " ".join(shell.tenon("explain", "node", goes).out.split())
    assert "soft taint" not in shell.tenon("explain", "node", stays).out
