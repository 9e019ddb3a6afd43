"""A week of a steady daily load: pods moved and money spent, against the rule "replace whenever it is cheaper".

Both start from nothing and see the same pods come and go. Time goes in steps of half an hour; what is planned happens
at once, so only decisions are compared, not how quickly they are carried out.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING

from msgspec.structs import replace as with_fields

from bench import consolidation as made
from shared.api import labels as names
from shared.api.nodepool import Budget, Disruption, NodePool, NodePoolSpec
from shared.disruption import candidates, consolidation
from shared.disruption.budgets import BudgetTracker
from shared.disruption.disruption_state import DisruptionState
from shared.disruption.simulated_scheduling import simulate_scheduling
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule
from shared.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

STEP = timedelta(minutes=30)
WEEK = timedelta(days=7)
LEAST, MOST = 60, 140
TURNOVER = 0.02
"""Share of the pods that are replaced by new ones each step, besides the daily wave."""
SEEDS = (1, 2, 3)
SETS = 25
"""Sets of nodes that a look may ask about: steps, not seconds, so that the figures repeat."""


@dataclass(frozen=True)
class Machine:
    """What was bought, when, and whether it was to replace another."""

    kind: str
    zone: str
    capacity_type: str
    since: datetime
    replaces: bool


@dataclass
class Fleet:
    """Machines with when they were bought, and pods with where they run."""

    machines: dict[str, Machine] = field(default_factory=dict)
    pods: dict[str, tuple[tuple[int, int], str]] = field(default_factory=dict)
    serial: count[int] = field(default_factory=count)
    moved: int = 0
    spent: float = 0.0

    def view(self, now: datetime) -> DisruptionState:
        """As a method sees it."""
        types = made.instance_types()
        by_name = {t.name: t for t in types}
        pairs = []
        for name, one in sorted(self.machines.items()):
            claim, node = made.machine(name, by_name[one.kind], one.zone, one.capacity_type)
            conditions = [with_fields(c, last_transition_time=one.since) for c in claim.status.conditions]
            annotations = {names.REPLACES: "earlier"} if one.replaces else {}
            metadata = with_fields(claim.metadata, creation_timestamp=one.since, annotations=annotations)
            pairs.append(
                (
                    with_fields(claim, metadata=metadata, status=with_fields(claim.status, conditions=conditions)),
                    node,
                )
            )
        pool = NodePool(
            metadata=made.pool().metadata,
            spec=NodePoolSpec(disruption=Disruption(consolidate_after="0s", budgets=[Budget(nodes="10%")])),
        )
        snapshot = Snapshot(
            taken_at=now,
            pods=tuple(made.pod(p, shape, node) for p, (shape, node) in sorted(self.pods.items())),
            nodes=tuple(n for _, n in pairs),
            node_claims=tuple(c for c, _ in pairs),
            node_pools=(pool,),
        )
        return DisruptionState(snapshot=snapshot, now=now, instance_types={"default": types})

    def place(self, now: datetime, leaving: frozenset[str] = frozenset()) -> None:
        """Place what is pending and the pods of leaving nodes, which are counted as moved and then go."""
        view = self.view(now)
        decision = schedule(Problem(snapshot=view.snapshot, instance_types=view.instance_types, leaving=leaving))
        self.moved += sum(1 for _, node in self.pods.values() if node in leaving)
        for node, keys in decision.existing_nodes.items():
            self._put(keys, node)
        for planned in decision.new_node_claims:
            name = f"m{next(self.serial):05d}"
            best = planned.cheapest
            self.machines[name] = Machine(best.instance_type, best.zone, best.capacity_type, now, bool(leaving))
            self._put(planned.pods, name)
        for name in leaving:
            del self.machines[name]

    def _put(self, keys: tuple[str, ...], node: str) -> None:
        for key in keys:
            name = key.partition("/")[2]
            self.pods[name] = (self.pods[name][0], node)

    def price(self) -> float:
        """USD per hour."""
        prices: Mapping[str, float] = {t.name: t.offerings[0].price for t in made.instance_types()}
        return sum(prices[m.kind] for m in self.machines.values())


def week(rule: Callable[[Fleet, datetime], None], *, seed: int) -> Fleet:
    """The fleet after a week under a rule."""
    rng = random.Random(seed)  # noqa: S311 (which pods come and go)
    fleet = Fleet()
    start = made.NOW
    now = start
    pods = count()
    while now < start + WEEK:
        hours = (now - start) / timedelta(hours=1)
        wanted = round((LEAST + MOST) / 2 + (MOST - LEAST) / 2 * math.sin(2 * math.pi * hours / 24))
        there = sorted(fleet.pods)
        leave = max(0, len(there) - wanted) + round(TURNOVER * len(there))
        for name in rng.sample(there, min(leave, len(there))):
            del fleet.pods[name]
        while len(fleet.pods) < wanted:
            fleet.pods[f"p{next(pods):06d}"] = (rng.choice(made._SHAPES), "")  # noqa: SLF001 (the same shapes)
        fleet.place(now)
        used = {node for _, node in fleet.pods.values()}
        fleet.machines = {n: m for n, m in fleet.machines.items() if n in used}
        rule(fleet, now)
        fleet.spent += fleet.price() * (STEP / timedelta(hours=1))
        now += STEP
    return fleet


def ours(fleet: Fleet, now: datetime) -> None:
    """One look as Tenon takes it."""
    left = iter(range(SETS))
    view = fleet.view(now)
    found = consolidation.search(view, BudgetTracker(view.snapshot, now=now), lambda: next(left, None) is None)
    if found.command is not None:
        fleet.place(now, frozenset(found.command.nodes))


def greedy(fleet: Fleet, now: datetime) -> None:
    """Each node in turn goes whenever its pods cost less elsewhere, as many as the budget allows."""
    view = fleet.view(now)
    slots = BudgetTracker(view.snapshot, now=now).remaining("default", "Underutilized")
    for name in [c.name for c in candidates.all_candidates(view)]:
        if slots < 1:
            return
        view = fleet.view(now)
        found = next((c for c in candidates.all_candidates(view) if c.name == name), None)
        if found is not None and simulate_scheduling(view, [found]).price < (view.price(found.claim) or 0.0) - 1e-9:
            fleet.place(now, frozenset({name}))
            slots -= 1


def run() -> list[dict[str, str]]:
    """The figures of a week under both rules, with each seed."""
    moved, spent = [], []
    for seed in SEEDS:
        a, b = week(ours, seed=seed), week(greedy, seed=seed)
        moved.append(f"{a.moved / b.moved:.1%} ({a.moved} to {b.moved})")
        spent.append(f"{a.spent / b.spent:.1%} (${a.spent:.2f} to ${b.spent:.2f})")
    how = f"{LEAST} to {MOST} pods a day, {TURNOVER:.0%} replaced each half hour, seeds {', '.join(map(str, SEEDS))}"
    return [
        {
            "figure": "voluntary pod moves in a week against greedy",
            "asked": "at most 50 %",
            "measured": ", ".join(moved),
            "how": how,
        },
        {
            "figure": "spent in a week against greedy",
            "asked": "at most 102 %",
            "measured": ", ".join(spent),
            "how": how,
        },
    ]
