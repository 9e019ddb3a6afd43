"""A week of a daily load: rescheduled pods and cost, against the rule "replace whenever it is cheaper".

Both start with an empty cluster and the same pods. Time advances in steps of half an hour, and commands take effect at
once, so only decisions are compared, not how fast they are executed.
"""

from __future__ import annotations

import math
import random
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from bench import consolidation as sample
from shared.api import labels as names
from shared.api.nodepool import Budget, Disruption, NodePool, NodePoolSpec
from shared.base.struct import MutableStruct, Struct, with_fields
from shared.disruption import candidates, consolidation, load_history
from shared.disruption.budgets import BudgetTracker
from shared.disruption.disruption_state import DisruptionState
from shared.disruption.load_history import LoadHistory
from shared.disruption.savings_evidence import savings_evidence
from shared.disruption.simulated_scheduling import simulate_scheduling
from shared.disruption.workloads import current_workloads
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
"""Share of the pods that are replaced by new ones each step, besides the daily load."""
SEEDS = (1, 2, 3)
SETS = 25
"""Sets of nodes that each search may evaluate: not seconds, so that results repeat."""


class Machine(Struct):
    """A launched node, and whether it replaced another."""

    kind: str
    zone: str
    capacity_type: str
    since: datetime
    replaces: bool


class Fleet(MutableStruct):
    """Nodes and pods, and the totals so far."""

    machines: dict[str, Machine] = {}
    pods: dict[str, tuple[tuple[int, int], str]] = {}
    serial: count[int] = msgspec.field(default_factory=count)
    rescheduled: int = 0
    spent: float = 0.0
    history: LoadHistory = LoadHistory()

    def view(self, now: datetime) -> DisruptionState:
        """The input of disruption methods."""
        types = sample.instance_types()
        by_name = {t.name: t for t in types}
        pairs = []
        for name, node_ in sorted(self.machines.items()):
            claim, node = sample.node_with_claim(name, by_name[node_.kind], node_.zone, node_.capacity_type)
            conditions = [with_fields(c, last_transition_time=node_.since) for c in claim.status.conditions]
            annotations = {names.REPLACES: "earlier"} if node_.replaces else {}
            metadata = with_fields(claim.metadata, creation_timestamp=node_.since, annotations=annotations)
            pairs.append(
                (
                    with_fields(claim, metadata=metadata, status=with_fields(claim.status, conditions=conditions)),
                    node,
                )
            )
        pool = NodePool(
            metadata=sample.pool().metadata,
            spec=NodePoolSpec(disruption=Disruption(consolidate_after="0s", budgets=[Budget(nodes="10%")])),
        )
        snapshot = Snapshot(
            taken_at=now,
            pods=tuple(sample.pod(p, shape, node) for p, (shape, node) in sorted(self.pods.items())),
            nodes=tuple(n for _, n in pairs),
            node_claims=tuple(c for c, _ in pairs),
            node_pools=(pool,),
        )
        return DisruptionState(snapshot=snapshot, now=now, instance_types={"default": types})

    def schedule_pods(self, now: datetime, leaving: frozenset[str] = frozenset()) -> None:
        """Schedule pending pods and those of leaving nodes, then remove these nodes."""
        view = self.view(now)
        decision = schedule(Problem(snapshot=view.snapshot, instance_types=view.instance_types, leaving=leaving))
        self.rescheduled += sum(1 for _, node in self.pods.values() if node in leaving)
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
        prices: Mapping[str, float] = {t.name: t.offerings[0].price for t in sample.instance_types()}
        return sum(prices[m.kind] for m in self.machines.values())


def week(rule: Callable[[Fleet, datetime], None], *, seed: int) -> Fleet:
    """The fleet after a week with a consolidation rule."""
    rng = random.Random(seed)  # noqa: S311 (which pods come and go)
    fleet = Fleet()
    start = sample.NOW
    now = start
    pods = count()
    while now < start + WEEK:
        hours = (now - start) / timedelta(hours=1)
        pod_target = round((LEAST + MOST) / 2 + (MOST - LEAST) / 2 * math.sin(2 * math.pi * hours / 24))
        pod_names = sorted(fleet.pods)
        leave = max(0, len(pod_names) - pod_target) + round(TURNOVER * len(pod_names))
        for name in rng.sample(pod_names, min(leave, len(pod_names))):
            del fleet.pods[name]
        while len(fleet.pods) < pod_target:
            fleet.pods[f"p{next(pods):06d}"] = (rng.choice(sample._SHAPES), "")  # noqa: SLF001 (the same shapes)
        fleet.schedule_pods(now)
        used = {node for _, node in fleet.pods.values()}
        fleet.machines = {n: m for n, m in fleet.machines.items() if n in used}
        rule(fleet, now)
        fleet.spent += fleet.price() * (STEP / timedelta(hours=1))
        now += STEP
    return fleet


def tenon(fleet: Fleet, now: datetime) -> None:
    """One consolidation as Tenon does it."""
    left = iter(range(SETS))
    view = fleet.view(now)
    current = current_workloads(view.snapshot)
    fleet.history = load_history.updated(fleet.history, current, now=now)
    view = with_fields(view, evidence=savings_evidence(fleet.history, current.workloads, now=now))
    result = consolidation.search(view, BudgetTracker(view.snapshot, now=now), lambda: next(left, None) is None)
    if result.command is not None:
        fleet.schedule_pods(now, frozenset(result.command.nodes))


def greedy(fleet: Fleet, now: datetime) -> None:
    """Disrupt each node whose pods cost less on other nodes, up to the budget."""
    view = fleet.view(now)
    slots = BudgetTracker(view.snapshot, now=now).remaining("default", "Underutilized")
    for name in [c.name for c in candidates.all_candidates(view)]:
        if slots < 1:
            return
        view = fleet.view(now)
        candidate = next((c for c in candidates.all_candidates(view) if c.name == name), None)
        if (
            candidate is not None
            and simulate_scheduling(view, [candidate]).price < (view.price(candidate.claim) or 0.0) - 1e-9
        ):
            fleet.schedule_pods(now, frozenset({name}))
            slots -= 1


def run() -> list[dict[str, str]]:
    """The rows for a week with both rules, for each seed."""
    rescheduled, spent = [], []
    for seed in SEEDS:
        a, b = week(tenon, seed=seed), week(greedy, seed=seed)
        rescheduled.append(f"{a.rescheduled / b.rescheduled:.1%} ({a.rescheduled} to {b.rescheduled})")
        spent.append(f"{a.spent / b.spent:.1%} (${a.spent:.2f} to ${b.spent:.2f})")
    how = f"{LEAST} to {MOST} pods a day, {TURNOVER:.0%} replaced each half hour, seeds {', '.join(map(str, SEEDS))}"
    return [
        {
            "measurement": "voluntarily rescheduled pods in a week, relative to greedy",
            "target": "at most 50 %",
            "result": ", ".join(rescheduled),
            "method": how,
        },
        {
            "measurement": "cost of a week, relative to greedy",
            "target": "at most 102 %",
            "result": ", ".join(spent),
            "method": how,
        },
    ]
