"""How many calls of AWS a decision takes: an invocation's don't grow with the nodes, but for those listed here.

The calls of an invocation are counted, at two numbers of nodes. Those to EC2, which has buckets for the whole account,
are also counted in total: they may grow by batches.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.world import World, sample_objects
from local.world.options import Options

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.aws.calls import Call

FEW, MANY = 20, 60
BATCHES = 6
"""How many calls more of an operation one invocation may take at the larger number of nodes: of its batches, and of
sweeps that happened at one of the numbers only."""
SHARE = 0.5
"""How many calls more of an operation of EC2 all invocations together may take, for each node more."""
WITH_EACH_NODE = {
    ("lifecycle", "CreateTags"): "each instance has tags of its own; at most 100 a sweep",
    ("disruption", "PutItem"): "remembers the wake-up below, so that it is sent once",
    ("disruption", "SendMessage"): "wakes the function at the second when a node's consolidateAfter ends",
}
"""What may grow with each node, with the reason."""

Counts = dict[tuple[str, str, str], int]
"""By decision, function and operation."""


def one_each(name: str, replicas: int) -> dict[str, Any]:
    return sample_objects.deployment(name, replicas, {"cpu": "1"}, affinity=sample_objects.one_per_node(name))


def most_of_an_invocation(world: World, calls: list[Call], decision: str) -> Counts:
    """The most calls that one invocation made; functions run one at a time, so the time tells whose a call is."""
    most: Counts = defaultdict(int)
    for invocation in world.aws.functions.invocations:
        end = invocation.at + timedelta(seconds=invocation.latency)
        of_function = (c for c in calls if c.caller == invocation.function and invocation.at <= c.at <= end)
        for operation, number in Counter(c.operation for c in of_function).items():
            key = decision, invocation.function, operation
            most[key] = max(most[key], number)
    return most


def calls_of_decisions(nodes: int, load: Callable[[str], list[dict[str, Any]]]) -> tuple[Counts, Counts]:
    """The most calls of an invocation, and all calls to EC2, for that many nodes."""
    most: Counts = {}
    of_ec2: Counts = {}
    with World(cluster="demo", options=Options(elapsed=time.process_time, hostility=None)) as world:
        world.apply(load("spot-default.yaml"))
        world.run_for(timedelta(minutes=2))

        def count(decision: str, is_done: Callable[[], bool]) -> None:
            before = len(world.aws.calls.all)
            world.run_until(is_done, limit=timedelta(minutes=30))
            world.run_for(timedelta(minutes=2))
            calls = [c for c in world.aws.calls.all[before:] if c.caller]
            most.update(most_of_an_invocation(world, calls, decision))
            totals = Counter((decision, c.caller, c.operation) for c in calls if c.service == "ec2")
            of_ec2.update(totals)

        def claims() -> set[str]:
            return {c["metadata"]["name"] for c in world.claims()}

        world.apply(one_each("web", nodes))
        count("provisioning", lambda: len(world.pods(phase="Running")) == nodes)
        before = claims()
        world.interrupt_spot([i.id for i in world.instances()])
        count("interruption", lambda: len(world.pods(phase="Running")) == nodes and not before & claims())
        world.scale("default", "web", 0)
        count("emptiness and termination", lambda: not world.claims() and not world.instances())
        assert not world.dead_letters()
    return most, of_ec2


@pytest.mark.long
def test_calls_do_not_grow_with_the_nodes_but_those_with_a_reason(load: Callable[[str], list[dict[str, Any]]]) -> None:
    (few, few_of_ec2), (many, many_of_ec2) = (calls_of_decisions(nodes, load) for nodes in (FEW, MANY))
    grown = [
        f"{' '.join(key)}: {before.get(key, 0)} and {number}"
        for before, after, allowed in (
            (few, many, BATCHES),
            (few_of_ec2, many_of_ec2, SHARE * (MANY - FEW)),
        )
        for key, number in after.items()
        if number > before.get(key, 0) + allowed and key[1:] not in WITH_EACH_NODE
    ]
    assert not grown, "\n".join(grown)
