"""A month under Tenon's decisions and under Karpenter's rules: dollars, moved pods, waits, nodes, and a lower bound.

Both have the same pods, prices and boots (:mod:`bench.month.simulated_cluster`). A load's months run in two processes.
"""

from __future__ import annotations

import gc
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from bench.month import bill, load_generator, price_bound
from bench.month.catalog import month_catalog
from bench.month.karpenter_rules import KarpenterRules
from bench.month.load_generator import CAPACITY_TYPES, HOUR
from bench.month.simulated_cluster import SimulatedCluster
from bench.month.tenon_rules import TenonRules
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.month.bill import NodeSpan, Offering
    from bench.month.load_trace import Trace
    from bench.month.simulated_cluster import Rules

TENON, KARPENTER = "tenon", "karpenter"
RULES: Mapping[str, type[TenonRules | KarpenterRules]] = {TENON: TenonRules, KARPENTER: KarpenterRules}
WORKERS = 2


class Month(Struct, kw_only=True):
    """A load by its name and seed under each of the RULES, and its lower bound, USD per hour of each hour."""

    load: str
    seed: int
    outcomes: Mapping[str, Outcome]
    bound: Sequence[float]


class Outcome(Struct, kw_only=True):
    """A month under the rules of one. Waits are seconds of pods until a node, moved pods apart; nodes are the average.

    ``cost`` and ``nodes_by_hour`` are averages (USD per hour) and numbers of nodes of each hour.
    """

    dollars: float
    moved: int
    wait_p50: float
    wait_p99: float
    moved_wait_p99: float
    nodes: float
    launched: int
    commands: int
    invalid: int
    processor_seconds: float
    cost_by_hour: Sequence[float]
    nodes_by_hour: Sequence[float]


def simulate(trace: Trace, rules: Rules, *, capacity_types: tuple[str, ...], seed: int, seconds: int) -> Outcome:
    """The outcome of a trace's first seconds under these rules."""
    began = time.process_time()
    catalog = month_catalog(capacity_types)
    record = SimulatedCluster(trace, catalog, rules, seed=seed, seconds=seconds).run()
    price = bill.list_price(catalog)
    offerings = {span.offering for span in record.spans}
    cost = _by_hour(record.spans, {o: price({o: 1}) for o in offerings}, seconds)
    nodes = _by_hour(record.spans, dict.fromkeys(offerings, 1.0), seconds)
    waits, moved_waits = record.waits or [0], record.moved_waits or [0]
    return Outcome(
        dollars=round(bill.dollars(record.spans, price), 4),
        moved=record.moved,
        wait_p50=float(np.percentile(waits, 50)),
        wait_p99=round(float(np.percentile(waits, 99)), 1),
        moved_wait_p99=round(float(np.percentile(moved_waits, 99)), 1),
        nodes=round(float(np.mean(nodes)), 1),
        launched=len(record.spans),
        commands=record.commands,
        invalid=record.invalid,
        processor_seconds=round(time.process_time() - began),
        cost_by_hour=cost,
        nodes_by_hour=nodes,
    )


def _by_hour(spans: Sequence[NodeSpan], weight: Mapping[Offering, float], seconds: int) -> list[float]:
    """The average of each hour of the running nodes' weights."""
    total = np.zeros(-(-seconds // HOUR))
    for span in spans:
        for hour in range(span.launched // HOUR, -(-span.terminated // HOUR)):
            overlap = min(span.terminated, (hour + 1) * HOUR) - max(span.launched, hour * HOUR)
            total[hour] += weight[span.offering] * overlap / HOUR
    return [round(float(v), 4) for v in total]


def _simulate_load(load: str, seed: int, rules: str, seconds: int) -> Outcome:
    gc.freeze()
    gc.set_threshold(200_000)  # most objects live for long, and few are in cycles
    trace = load_generator.generate(load, seed=seed, seconds=seconds)
    return simulate(trace, RULES[rules](), capacity_types=CAPACITY_TYPES[load], seed=seed, seconds=seconds)


def bound_by_hour(trace: Trace, capacity_types: tuple[str, ...], seconds: int) -> list[float]:
    """The lower bound, USD per hour, of each hour."""
    rates = price_bound.lower_bound(trace, month_catalog(capacity_types), seconds=seconds)
    steps = HOUR // price_bound.STEP
    return [round(sum(rates[i : i + steps]) / steps, 4) for i in range(0, len(rates), steps)]


def measure(loads: Sequence[str], seeds: Sequence[int], seconds: int) -> Iterator[Month]:
    """The month of each load and seed, with its lower bound by hour, all loads of a seed before the next."""
    for load in loads:
        month_catalog(CAPACITY_TYPES[load])  # fetched and cached before there are several processes
    months = [(load, seed) for seed in seeds for load in loads]
    with ProcessPoolExecutor(WORKERS) as pool:
        running = {(m, rules): pool.submit(_simulate_load, *m, rules, seconds) for m in months for rules in RULES}
        for load, seed in months:
            trace = load_generator.generate(load, seed=seed, seconds=seconds)
            bound = bound_by_hour(trace, CAPACITY_TYPES[load], seconds)
            outcomes = {rules: running[(load, seed), rules].result() for rules in RULES}
            yield Month(load=load, seed=seed, outcomes=outcomes, bound=bound)


def replay(trace: Trace, *, capacity_types: tuple[str, ...], seed: int, seconds: int, name: str) -> Month:
    """The month of a trace."""
    outcomes = {
        key: simulate(trace, rules(), capacity_types=capacity_types, seed=seed, seconds=seconds)
        for key, rules in RULES.items()
    }
    return Month(load=name, seed=seed, outcomes=outcomes, bound=bound_by_hour(trace, capacity_types, seconds))
