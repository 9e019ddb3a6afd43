"""Scale-in: dollars and moved pods after most of the load has gone, against a greedy search; and when it comes back.

A local cluster runs 1,000 pods of 20 Deployments for ten minutes. Then all Deployments are scaled at once. The greedy
search is Tenon's without a price for moving pods: woken by the same events, under the same budgets, with the same boots
and prices. Each of its commands is the set of nodes that saves most per hour at that moment, however many pods it
moves, however soon the load may return. Both start from the same cluster: the greedy search begins with the scale-in.

``python -m bench.scale_in [SEED …]`` measures, and saves into scale_in.json what :func:`run` reports.
"""

from __future__ import annotations

import contextlib
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from bench import saved_figures
from functions.disruption import savings_search
from local.aws.backends import replaced
from local.world import Options, World, catalog_cache, sample_objects
from shared.api import labels as names
from shared.base.struct import Struct
from shared.disruption import candidate_matrix, consolidation, savings
from shared.disruption.savings import SavingsDuration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from local.world.timeline import TimelineEvent
    from shared.instance_types.catalog import InstanceTypeCatalog

RESULTS = Path(__file__).parent / "scale_in.json"
DEPLOYMENTS, REPLICAS = 20, 50
RULES = ("tenon", "greedy")
MINUTES = (10, 30, 60)
TARGET = 0.95
_SEARCH_TIMEOUT = timedelta(seconds=1)
"""Processor time of each search, for both: a quarter of a hundred sets. Longer ones change little and take hours."""
_BEFORE = timedelta(minutes=10)


class Scenario(Struct, kw_only=True):
    """All Deployments are scaled to ``replicas``, and back after ``back_after`` minutes (0: never)."""

    replicas: int
    back_after: int = 0

    def __str__(self) -> str:
        """The pods before and after."""
        text = f"1,000 → {self.replicas * DEPLOYMENTS}"
        return f"{text} → 1,000 after {self.back_after} min" if self.back_after else text


SCENARIOS = (
    Scenario(replicas=15),
    Scenario(replicas=45),
    Scenario(replicas=0),
    Scenario(replicas=15, back_after=5),
    Scenario(replicas=15, back_after=20),
    Scenario(replicas=15, back_after=60),
)


class Outcome(Struct, kw_only=True):
    """``price_before`` and ``price_after`` are USD per hour, the latter at the end. ``dollars`` are by minutes.

    ``moved`` counts pods that were created to succeed evicted ones.
    """

    price_before: float
    price_after: float
    dollars: dict[str, float]
    moved: int
    launched: int


def measure(rule: str, scenario: Scenario, seed: int) -> Outcome:
    """What a rule costs from the scale-in on."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(savings_search, "_SEARCH_TIMEOUT", _SEARCH_TIMEOUT))
        world = stack.enter_context(World(seed=seed, options=Options(elapsed=time.process_time, latencies=None)))
        world.apply([sample_objects.node_class(world), pool(), *deployments()])
        pods = DEPLOYMENTS * REPLICAS
        world.run_until(lambda: len(world.pods(phase="Running")) == pods, limit=timedelta(minutes=30))
        world.run_for(_BEFORE)
        prices = Prices(world)
        if rule == "greedy":
            stack.enter_context(greedy())
        start, events = world.clock.now(), len(world.timeline.all)
        before = prices.per_hour(start)
        scale(world, scenario.replicas)
        end = start + timedelta(minutes=max(MINUTES))
        if scenario.back_after:
            world.run_for(timedelta(minutes=scenario.back_after))
            scale(world, REPLICAS)
            end = max(end, world.clock.now() + timedelta(minutes=10))
        world.run_for(end - world.clock.now())
        after = world.timeline.all[events:]
        created = sum(e.type == "pod created" and e.name.startswith("default/") for e in after)
        wanted = DEPLOYMENTS * (REPLICAS - scenario.replicas) if scenario.back_after else 0
        return Outcome(
            price_before=round(before, 4),
            price_after=round(prices.per_hour(world.clock.now()), 4),
            dollars={str(m): round(prices.dollars(start, start + timedelta(minutes=m)), 4) for m in MINUTES},
            moved=created - wanted,
            launched=sum(e.type == "claim launched" for e in after),
        )


@contextlib.contextmanager
def greedy() -> Iterator[None]:
    """Moving pods costs nothing, and savings last, on every node, for as long."""
    with (
        replaced(candidate_matrix, "pod_disruption_cost", lambda _pod, _price, _of_pool: 0.0),
        replaced(savings, "REPLACEMENT_OVERLAP", timedelta()),
        replaced(consolidation, "savings_duration", lambda *_, **__: SavingsDuration(1.0, 1.0)),
    ):
        yield


class Prices:
    """What the nodes of a world cost, from each launch to the end of its NodeClaim."""

    def __init__(self, world: World) -> None:
        catalog = catalog_cache.load(region=world.region, seed=world.seed, now=world.clock.now())
        if catalog is None:
            raise RuntimeError("the local world has no catalog")
        self._catalog: InstanceTypeCatalog = catalog
        self._world = world

    def per_hour(self, moment: datetime) -> float:
        """USD per hour of the nodes at that moment."""
        return sum(
            price for begin, end, price in self._lifetimes() if begin <= moment and (end is None or end > moment)
        )

    def dollars(self, since: datetime, until: datetime) -> float:
        """USD of all nodes between two moments."""
        spans = ((max(b, since), min(e or until, until), price) for b, e, price in self._lifetimes())
        return sum(price * (end - begin) / timedelta(hours=1) for begin, end, price in spans if end > begin)

    def of_labels(self, labels: Mapping[str, str]) -> float:
        """USD per hour of a node with these labels."""
        return self._catalog.price(labels) or 0.0

    def _lifetimes(self) -> list[tuple[datetime, datetime | None, float]]:
        launched = {e.name: e for e in self._world.timeline.of("claim launched")}
        deleted = {e.name: e.at for e in self._world.timeline.of("claim deleted")}
        return [(e.at, deleted.get(name), self._price(e)) for name, e in launched.items()]

    def _price(self, launch: TimelineEvent) -> float:
        details = launch.details
        labels = {
            names.INSTANCE_TYPE: details["instance_type"],
            names.ZONE: details["zone"],
            names.CAPACITY_TYPE: details["capacity_type"],
        }
        return self.of_labels(labels)


def pool() -> dict[str, Any]:
    """A NodePool of general instance types, spot and on-demand."""
    requirements = {
        names.CAPACITY_TYPE: [names.SPOT, names.ON_DEMAND],
        names.ARCH: ["amd64"],
        names.OS: ["linux"],
        f"{names.INSTANCE_PREFIX}category": ["c", "m", "r"],
    }
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s"}
    return sample_objects.node_pool(requirements, disruption=disruption)


def deployments() -> list[dict[str, Any]]:
    """Requests of 100 milli-cpu to 1,050, and 256 MiB to 1,280."""
    return [
        sample_objects.deployment(f"web-{i}", REPLICAS, {"cpu": f"{100 + 50 * i}m", "memory": f"{256 * (1 + i % 5)}Mi"})
        for i in range(DEPLOYMENTS)
    ]


def scale(world: World, replicas: int) -> None:
    """Give each Deployment these replicas."""
    for i in range(DEPLOYMENTS):
        world.scale("default", f"web-{i}", replicas)


def saved() -> dict[str, dict[str, Any]]:
    """The saved outcomes by scenario, seed and rule."""
    return saved_figures.read(RESULTS)


def save(scenario: Scenario, seed: int, rule: str, outcome: Outcome) -> None:
    """Save an outcome with the others."""
    outcomes = {**saved(), f"{scenario}, seed {seed}, {rule}": asdict(outcome)}
    saved_figures.write(RESULTS, outcomes, sort_keys=True)


def run() -> list[dict[str, str]]:
    """The rows of the saved outcomes."""
    outcomes = saved()
    rows = []
    for scenario in SCENARIOS:
        keys = [key.rpartition(", ")[0] for key in outcomes if key.startswith(f"{scenario}, ") and "tenon" in key]
        pairs = [
            (outcomes[f"{key}, tenon"], outcomes[f"{key}, greedy"]) for key in keys if f"{key}, greedy" in outcomes
        ]
        if pairs:
            rows += _rows(scenario, pairs, ", ".join(key.rpartition(" ")[2] for key in keys))
    return rows


def _rows(scenario: Scenario, pairs: list[tuple[Any, Any]], seeds: str) -> list[dict[str, str]]:
    how = f"local world, default budget of 10 %, consolidateAfter 30s; seed {seeds}; `python -m bench.scale_in`"
    rows = []
    for minutes in map(str, MINUTES):
        ratios = [
            f"{a['dollars'][minutes] / b['dollars'][minutes]:.1%} "
            f"(${a['dollars'][minutes]:.2f} to ${b['dollars'][minutes]:.2f})"
            for a, b in pairs
        ]
        rows.append(
            {
                "measurement": f"{scenario}: dollars in {minutes} min, relative to greedy",
                "target": f"at most {TARGET:.0%}",
                "result": ", ".join(ratios),
                "method": how,
            }
        )
    moved = ", ".join(f"{a['moved']} to {b['moved']}" for a, b in pairs)
    measurement = f"{scenario}: moved pods, relative to greedy"
    rows.append({"measurement": measurement, "target": "no more", "result": moved, "method": how})
    return rows


def main(arguments: list[str]) -> None:
    """Measure these seeds, by default 0; further arguments choose a rule and the number of a scenario."""
    seeds = [int(a) for a in arguments[:1]] or [0]
    rules = arguments[1:2] or list(RULES)
    scenarios = [SCENARIOS[int(a)] for a in arguments[2:3]] or list(SCENARIOS)
    for seed in seeds:
        for scenario in scenarios:
            for rule in rules:
                outcome = measure(rule, scenario, seed)
                save(scenario, seed, rule, outcome)
                print(f"  {scenario}, seed {seed}, {rule}: {outcome}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
