"""EC2's answers lag, are partial or empty: no healthy node is given up, and no instance is launched twice."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds
from local.world import sample_objects

if TYPE_CHECKING:
    from local.world import World

TEN_MINUTES = timedelta(minutes=10)
ONE_PER_NODE = sample_objects.one_per_node("inflate")


@pytest.mark.parametrize("answers", ["empty", "partial", "lagging"])
def test_no_answer_of_ec2_gives_up_a_healthy_node(spot_default: World, answers: str) -> None:
    world = spot_default
    world.scale("default", "inflate", 12)
    world.run_until_idle()
    before = {c["metadata"]["name"]: c["status"]["providerID"] for c in world.claims()}
    launched = len(world.aws.instances.all)
    match answers:
        case "empty":
            world.aws.consistency.left_out = 1.0
        case "partial":
            world.aws.consistency.left_out = 0.4
        case "lagging":
            world.aws.consistency.lag = timedelta(hours=1)
    world.run_for(TEN_MINUTES)
    assert {c["metadata"]["name"]: c["status"]["providerID"] for c in world.claims()} == before
    assert len(world.aws.instances.all) == len(world.instances()) == launched
    assert not any("deletionTimestamp" in c["metadata"] for c in world.claims())


@pytest.mark.parametrize("answers", ["empty", "partial", "lagging"])
def test_nodes_launched_while_answers_are_wrong_are_launched_once(spot_default: World, answers: str) -> None:
    world = spot_default
    consistency = world.aws.consistency
    consistency.left_out = {"empty": 1.0, "partial": 0.4, "lagging": 0.0}[answers]
    consistency.lag = TEN_MINUTES if answers == "lagging" else timedelta()
    consistency.tag_lag = timedelta(seconds=90)
    world.scale("default", "inflate", 60)
    world.run_for(TEN_MINUTES)
    consistency.left_out, consistency.lag, consistency.tag_lag = 0.0, timedelta(), timedelta()
    world.run_until_idle(limit=timedelta(hours=1))
    assert len(world.pods(phase="Running")) == 60
    assert len(world.aws.instances.all) == len(world.instances()) == len(world.claims()) == len(world.nodes())


def test_answers_that_leave_out_subnets_groups_and_images_change_no_class_and_no_node(spot_default: World) -> None:
    world = spot_default
    consistency = world.aws.consistency
    consistency.incomplete, consistency.resources_left_out = 0.1, 0.5
    world.scale("default", "inflate", 12)
    world.run_until_idle()
    before = {c["metadata"]["name"] for c in world.claims()}
    kind = world.store.kind("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate")
    statuses: list[dict[str, Any]] = []
    world.store.subscribe(lambda change: statuses.append(change.object["status"]) if change.kind == kind else None)
    status = world.store.get(kind, "default")["status"]
    world.run_for(timedelta(hours=1))
    assert [s for s in statuses if s != status] == []
    assert {c["metadata"]["name"] for c in world.claims()} == before
    assert not [d for c in world.claims() for d in c["status"]["conditions"] if d["type"] == "Drifted"]


@pytest.mark.long
def test_two_hundred_nodes_survive_ten_minutes_of_each_wrong_answer(spot_default: World) -> None:
    world = spot_default
    world.store.patch(
        kinds.DEPLOYMENTS,
        "inflate",
        {"spec": {"template": {"spec": {"affinity": ONE_PER_NODE}}}},
        namespace="default",
    )
    world.scale("default", "inflate", 200)
    world.run_until_idle(limit=timedelta(hours=1))
    before = {c["metadata"]["name"]: c["status"]["providerID"] for c in world.claims()}
    assert len(before) == 200
    consistency = world.aws.consistency
    for left_out, lag in ((1.0, timedelta()), (0.5, timedelta()), (0.0, timedelta(hours=1)), (0.3, TEN_MINUTES)):
        consistency.left_out, consistency.lag = left_out, lag
        world.run_for(TEN_MINUTES)
    consistency.left_out, consistency.lag = 0.0, timedelta()
    world.run_for(TEN_MINUTES)
    assert {c["metadata"]["name"]: c["status"]["providerID"] for c in world.claims()} == before
    assert len(world.aws.instances.all) == len(world.instances()) == 200
