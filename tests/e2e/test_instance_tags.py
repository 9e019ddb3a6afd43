"""The tags of instances that were launched by one call for several NodeClaims."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.world import sample_objects
from shared.api import labels

if TYPE_CHECKING:
    from local.world import World

NODES = 12


def run_pods(world: World) -> None:
    affinity = sample_objects.one_per_node("web")
    world.apply(sample_objects.deployment("web", NODES, {"cpu": "1"}, affinity=affinity))
    world.run_until(lambda: len(world.pods(phase="Running")) == NODES)


def tags_by_instance(world: World) -> dict[str, dict[str, str]]:
    with world.aws.lock:
        return {i.id: {tag["key"]: tag["value"] for tag in i.get_tags()} for i in world.instances()}


def expected_names(world: World) -> dict[str, str]:
    return {c["status"]["providerID"].rpartition("/")[2]: c["metadata"]["name"] for c in world.claims()}


@pytest.mark.flow
def test_they_have_their_nodeclaims_within_two_sweeps_and_by_one_call_each(spot_default: World) -> None:
    run_pods(spot_default)
    spot_default.run_for(timedelta(minutes=2))
    tags = tags_by_instance(spot_default)
    assert {i: own[labels.NODECLAIM_TAG] for i, own in tags.items()} == expected_names(spot_default)
    assert {i: own["Name"] for i, own in tags.items()} == expected_names(spot_default)
    calls = [c for c in spot_default.aws.calls.all if c.operation == "CreateTags"]
    assert len(calls) <= NODES
    assert {c.caller for c in calls} <= {"lifecycle"}


def test_they_are_tried_again_while_ec2_does_not_know_them_and_nothing_waits_for_them(spot_default: World) -> None:
    spot_default.aws.consistency.tag_lag = timedelta(minutes=3)
    run_pods(spot_default)
    spot_default.run_for(timedelta(minutes=6))
    refused = [c for c in spot_default.aws.calls.all if c.operation == "CreateTags" and c.error]
    assert 1 <= len(refused) <= 4, "one call a sweep while EC2 refuses"
    tags = tags_by_instance(spot_default)
    assert {i: own[labels.NODECLAIM_TAG] for i, own in tags.items()} == expected_names(spot_default)
    assert not spot_default.dead_letters()


def test_while_iam_does_not_see_an_instances_tags_it_is_neither_tagged_nor_terminated_and_then_it_is(
    spot_default: World,
) -> None:
    """Both are allowed for instances with the cluster's tags only, so EC2 answers UnauthorizedOperation at first."""
    world = spot_default
    world.aws.consistency.hidden_tags = timedelta(minutes=3)
    run_pods(world)
    world.run_for(timedelta(minutes=1))
    world.apply(sample_objects.deployment("web", 0, {"cpu": "1"}))
    for claim in world.claims():
        world.store.delete(world.store.kind("karpenter.sh/v1", "NodeClaim"), claim["metadata"]["name"])
    world.run_until(lambda: not world.instances() and not world.claims(), limit=timedelta(minutes=15))
    assert {c.operation for c in world.aws.enforcement.denied_too_early} == {"CreateTags", "TerminateInstances"}
    assert not world.dead_letters()
