"""Lambda's recursive loop detection doesn't cut Tenon's chains of requeues."""

from __future__ import annotations

from datetime import timedelta

import pytest

from local.kubernetes import kinds
from local.world import World, sample_objects
from shared.base.struct import with_fields

LIMIT = timedelta(minutes=30)


def blocked_drain(world: World) -> None:
    """One node is drained, and a PodDisruptionBudget allows no eviction for two hours."""
    requests = {"cpu": "700m", "memory": "256Mi"}
    world.apply([sample_objects.node_class(world), sample_objects.node_pool({})])
    world.apply([sample_objects.deployment("web", 1, requests), sample_objects.budget("web", 0)])
    world.run_until(lambda: bool(world.pods(phase="Running")), limit=LIMIT)
    world.store.delete(world.store.kind("karpenter.sh/v1", "NodeClaim"), world.claims()[0]["metadata"]["name"])
    world.run_for(timedelta(hours=2))
    world.store.delete(kinds.POD_DISRUPTION_BUDGETS, "web", namespace="default")
    world.run_until(lambda: len(world.instances()) == 1, limit=LIMIT)


@pytest.mark.long
def test_a_drain_that_is_blocked_for_two_hours_is_one_chain_that_is_not_cut(world: World) -> None:
    blocked_drain(world)
    own = [i for i in world.aws.functions.invocations if i.function == "termination" and i.trigger == "Drain"]
    assert len(own) > 16
    assert world.recursive_invocations_dropped() == []


@pytest.mark.long
def test_it_would_be_cut_if_the_function_did_not_allow_recursion(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    functions = world.aws.functions
    termination = functions.named("termination")
    monkeypatch.setitem(functions._functions, termination.name, with_fields(termination, allows_recursion=False))
    blocked_drain(world)
    assert world.recursive_invocations_dropped()
    world.expect_dropped_invocations()
