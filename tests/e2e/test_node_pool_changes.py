"""Edits of NodePools: what follows from them begins within seconds, not with the next sweep."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds
from local.world import sample_objects
from shared.cluster.lease import micro_time

if TYPE_CHECKING:
    from local.world import World

REQUIREMENTS = {"karpenter.sh/capacity-type": ["on-demand"], "node.kubernetes.io/instance-type": ["c5.large"]}
SECONDS = timedelta(seconds=5)


def start_one_node(world: World) -> None:
    """A node with a pod, of a pool whose budget lets none go."""
    world.apply(sample_objects.node_class(world))
    budgets = [{"nodes": "0"}]
    world.apply(sample_objects.node_pool(REQUIREMENTS, disruption={"consolidateAfter": "Never", "budgets": budgets}))
    world.apply(sample_objects.deployment("web", 1, {"cpu": "1"}))
    world.run_until(lambda: len(world.pods(phase="Running")) == 1)
    world.run_until_idle()


def edit(world: World, spec: dict[str, Any]) -> None:
    """Change the pool right after a scheduled sweep, most of a minute before the next one."""
    before = sweeps(world)
    world.run_until(lambda: sweeps(world) > before)
    world.store.patch(world.store.kind("karpenter.sh/v1", "NodePool"), "default", {"spec": spec})


def sweeps(world: World) -> int:
    """How many scheduled reconciles of disruption there have been."""
    invocations = [i for i in world.aws.functions.invocations if i.function.endswith("disruption")]
    return sum("Records" not in i.event for i in invocations)


def conditions(claim: dict[str, Any]) -> set[str]:
    return {c["type"] for c in claim["status"].get("conditions", []) if c["status"] == "True"}


@pytest.mark.flow
@pytest.mark.calm_world  # exact seconds
def test_drift_is_seen_within_seconds_of_the_pools_edit(world: World) -> None:
    start_one_node(world)

    edit(world, {"template": {"metadata": {"labels": {"team": "new"}}}})

    world.run_until(lambda: "Drifted" in conditions(world.claims()[0]), limit=SECONDS)


@pytest.mark.calm_world  # exact seconds
def test_drift_is_seen_within_seconds_although_another_function_is_deciding(world: World) -> None:
    start_one_node(world)

    edit(world, {"template": {"metadata": {"labels": {"team": "new"}}}})
    held = {
        "holderIdentity": "provisioner/other",
        "leaseDurationSeconds": 3,
        "renewTime": micro_time(world.clock.now()),
    }
    world.store.patch(kinds.LEASES, "tenon-demo", {"spec": held}, namespace="kube-system")

    world.run_until(lambda: "Drifted" in conditions(world.claims()[0]), limit=SECONDS)


@pytest.mark.calm_world  # exact seconds
def test_a_static_pool_is_scaled_down_within_seconds_of_its_edit(world: World) -> None:
    world.apply(sample_objects.node_class(world))
    budgets = [{"nodes": "100%"}]
    disruption = {"consolidateAfter": "Never", "budgets": budgets}
    world.apply(sample_objects.node_pool(REQUIREMENTS, replicas=3, disruption=disruption))
    world.run_until(lambda: sum("Initialized" in conditions(claim) for claim in world.claims()) == 3)
    world.run_until_idle()

    edit(world, {"replicas": 1})

    world.run_until(
        lambda: sum(c["metadata"].get("deletionTimestamp") is None for c in world.claims()) == 1, limit=SECONDS
    )
