"""Seven days with a daily load in a hostile world, then idle hours: what is there each midnight, and what flows."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from bench.endurance import inventory, load
from bench.endurance.flows import Flow, Flows
from local.world import Options, World
from local.world.hostility import Hostility
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

DAYS = 7
IDLE_HOURS = 6
_START = datetime(2026, 11, 2, tzinfo=UTC)
_HOUR = timedelta(hours=1)


class Period(Struct, kw_only=True):
    """A day, or an idle hour: what flowed, and what was there at its end; ``warm`` are objects in warm caches."""

    flow: Flow
    inventory: dict[str, int]
    warm: dict[str, int]


def run(
    *, days: int = DAYS, idle_hours: int = IDLE_HOURS, day: load.Day | None = None, rest: timedelta = timedelta()
) -> tuple[list[Period], list[Period]]:
    """The days, each followed by ``rest`` without a change of the load, and the idle hours after them."""
    options = Options(hostility=Hostility(), start=_START)
    with World(options=options) as world:
        flows = Flows(world)
        load.prepare(world)
        loaded = list(_days(world, flows, days, day or load.Day(), rest))
        load.scale(world, 0)
        world.run_for(_HOUR)
        flows.read()
        idle = []
        for _ in range(idle_hours):
            world.run_for(_HOUR)
            idle.append(_reported("idle hour", period(world, flows)))
    return loaded, idle


def _days(world: World, flows: Flows, days: int, day: load.Day, rest: timedelta) -> Iterator[Period]:
    for number in range(days):
        load.run_day(world, day, number)
        world.run_for(rest)
        yield _reported(f"day {number + 1}", period(world, flows))


def _reported(name: str, of: Period) -> Period:
    """The period, printed: the measurement takes hours."""
    print(f"{name}: {of.inventory}, {of.flow.invocations.total()} invocations", file=sys.stderr, flush=True)
    return of


def period(world: World, flows: Flows) -> Period:
    """What flowed since the last reading, and what is there now."""
    inventory.expire_events(world)
    return Period(flow=flows.read(), inventory=inventory.take(world), warm=inventory.warm_objects(world))


def grown(before: dict[str, int], after: dict[str, int], *, share: float = 0.0, least: int = 0) -> dict[str, str]:
    """What is more after than before: by more than that share, and by more than ``least``."""
    return {
        name: f"{before.get(name, 0):,} → {number:,}"
        for name, number in after.items()
        if number > before.get(name, 0) * (1 + share) and number - before.get(name, 0) > least
    }


def calls(flow: Flow) -> Counter[str]:
    """The calls to AWS by function."""
    return sum((Counter({caller: number}) for (caller, _), number in flow.calls.items()), Counter())
