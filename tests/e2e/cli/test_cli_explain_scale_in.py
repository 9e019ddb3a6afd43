"""`tenon explain node` after a scale-in: for how long savings are expected to last, and why."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from local.world import sample_objects

if TYPE_CHECKING:
    from tests.e2e.cli.conftest import Shell


def test_a_nodes_explanation_says_what_was_scaled_in_and_how_long_that_is_expected_to_last(shell: Shell) -> None:
    world = shell.world
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{"nodes": "0"}]}
    pool = sample_objects.node_pool({"karpenter.sh/capacity-type": ["on-demand"]}, disruption=disruption)
    world.apply([sample_objects.node_class(world), pool, sample_objects.deployment("web", 8, {"cpu": "500m"})])
    world.run_until(lambda: len(world.pods(phase="Running")) == 8)
    world.run_for(timedelta(minutes=2))
    before = shell.tenon("explain", "node", world.nodes()[0]["metadata"]["name"]).out
    assert "by the node's age" in before
    world.scale("default", "web", 2)
    world.run_for(timedelta(minutes=2))
    node = next(p["spec"]["nodeName"] for p in world.pods(phase="Running"))
    after = " ".join(shell.tenon("explain", "node", node).out.split())
    assert "about 6.0 h: Deployment default/web scaled in from 8 to 2 at" in after
