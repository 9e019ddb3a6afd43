"""Replacements that never initialize: the node that they replace takes pods again, and nothing is launched twice."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from local.kubernetes import kinds
from local.world import sample_objects
from shared.disruption.disruption_queue import QUEUE_ANNOTATION

if TYPE_CHECKING:
    from local.kubernetes.objects import Change
    from local.world import World

REQUIREMENTS = {"karpenter.sh/capacity-type": ["on-demand"], "node.kubernetes.io/instance-type": ["c5.large"]}
DISRUPTED = "karpenter.sh/disrupted"


STARTUP_TAINTS = [{"key": "example.com/agent", "effect": "NoSchedule"}]


def drifted(world: World) -> str:
    """The claim of a node with one pod. Its pool's nodes then get a startup taint that nobody removes."""
    world.apply(sample_objects.node_class(world))
    pool = sample_objects.node_pool(REQUIREMENTS, disruption={"consolidateAfter": "Never"})
    world.apply(pool)
    world.apply(sample_objects.deployment("web", 1, {"cpu": "1"}))
    world.run_until(lambda: len(world.pods(phase="Running")) == 1)
    world.run_until_idle()
    (claim,) = world.claims()
    kind = world.store.kind("karpenter.sh/v1", "NodePool")
    world.store.patch(kind, "default", {"spec": {"template": {"spec": {"startupTaints": STARTUP_TAINTS}}}})
    return str(claim["metadata"]["name"])


def is_tainted(world: World, claim: str) -> bool:
    name = world.store.get(world.store.kind("karpenter.sh/v1", "NodeClaim"), claim)["status"]["nodeName"]
    node = world.store.get(kinds.NODES, name)
    return any(taint["key"] == DISRUPTED for taint in node["spec"].get("taints") or [])


@pytest.mark.calm_world  # exact minutes
def test_a_replacement_that_is_not_initialized_after_ten_minutes_is_kept_and_the_node_takes_pods_again(
    world: World,
) -> None:
    old = drifted(world)
    queued: list[datetime] = []

    def observe(change: Change) -> None:
        entry = change.object["metadata"].get("annotations", {}).get(QUEUE_ANNOTATION)
        if not queued and change.kind.kind == "NodeClaim" and entry is not None:
            queued.append(datetime.fromisoformat(json.loads(entry)["since"]))

    world.store.subscribe(observe)
    world.run_until(lambda: is_tainted(world, old))

    world.run_until(lambda: not is_tainted(world, old), limit=timedelta(minutes=30))

    assert timedelta(minutes=10) <= world.clock.now() - queued[0] <= timedelta(minutes=10, seconds=20)
    claims = {claim["metadata"]["name"] for claim in world.claims()}
    assert len(claims) == 2
    world.run_for(timedelta(minutes=15))
    assert {claim["metadata"]["name"] for claim in world.claims()} == claims
    assert not is_tainted(world, old)
    assert len(world.instances()) == 2


def test_a_late_replacement_is_used_when_it_is_initialized_after_all(world: World) -> None:
    old = drifted(world)
    world.run_until(lambda: is_tainted(world, old))
    world.run_until(lambda: not is_tainted(world, old), limit=timedelta(minutes=30))
    (late,) = [claim for claim in world.claims() if claim["metadata"]["name"] != old]

    node = world.store.get(kinds.NODES, late["status"]["nodeName"])
    taints = [taint for taint in node["spec"]["taints"] if taint["key"] != "example.com/agent"]
    world.store.patch(kinds.NODES, node["metadata"]["name"], {"spec": {"taints": taints}})
    world.run_until(lambda: old not in {claim["metadata"]["name"] for claim in world.claims()})

    world.run_until(lambda: len(world.pods(phase="Running")) == 1)
    assert [claim["metadata"]["name"] for claim in world.claims()] == [late["metadata"]["name"]]
