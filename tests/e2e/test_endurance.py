"""Day after day nothing grows: what AWS and the cluster hold for Tenon, what flows, and what warm functions remember.

`make bench ARGS=endurance` measures seven whole days. Here a day is an hour, with the same load in it.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from bench.endurance import BY_AGE, load, week
from bench.endurance.flows import Flow, Flows
from local.world import Options, World

HOUR = timedelta(hours=1)
IDLE_INVOCATIONS = {"provisioner": 60, "lifecycle": 60, "disruption": 60, "interruption": 60, "catalog": 4}
"""A sweep each minute, and the catalog's prices each quarter of an hour."""


def without_aged(inventory: dict[str, int]) -> dict[str, int]:
    """Without the decision log and the load history, which are kept longer than the test takes."""
    return {name: number for name, number in inventory.items() if name not in BY_AGE}


def are_sweeps(flow: Flow) -> bool:
    """Whether nothing but sweeps ran in an hour, which is cut between two of them or not."""
    of_functions = flow.invocations.keys() == IDLE_INVOCATIONS.keys()
    return of_functions and all(abs(flow.invocations[name] - number) <= 1 for name, number in IDLE_INVOCATIONS.items())


@pytest.mark.long
def test_nothing_grows_from_a_day_to_the_next_in_a_hostile_world() -> None:
    day = load.Day(length=HOUR, drift_on=frozenset({1}))
    # Unused launch templates go an hour after their last launch, at the next hourly look.
    (_, second, third), idle = week.run(days=3, idle_hours=2, day=day, rest=3 * HOUR)
    assert week.grown(without_aged(second.inventory), without_aged(third.inventory)) == {}
    assert week.grown(second.warm, third.warm, share=0.1, least=1_000) == {}
    assert third.flow.series <= second.flow.series
    assert third.flow.failures == ()
    assert third.inventory["rows that never expire"] <= 1
    assert third.inventory["dead letters"] == third.inventory["messages in queues"] == 0
    assert are_sweeps(idle[-1].flow)
    assert {name for name in idle[-1].flow.writes if not name.endswith((" Lease", " Event"))} == set()


def test_an_idle_hour_is_sweeps_and_leaves_nothing() -> None:
    with World(options=Options(hostility=None)) as world:
        flows = Flows(world)
        load.prepare(world)
        world.run_for(HOUR)
        flows.read()
        before = week.period(world, flows)
        world.run_for(HOUR)
        after = week.period(world, flows)
    assert are_sweeps(after.flow)
    assert after.flow.messages in {59, 60, 61}
    assert set(after.flow.writes) == {"modified Lease"}
    assert week.grown(before.inventory, after.inventory, share=0.05) == {}
    assert week.grown(before.warm, after.warm) == {}
