"""A month with 40 % of the usage committed: Tenon's bill, compared with linear programs that know the commitments.

``python -m bench.month.committed`` simulates each load without commitments on demand, buys commitments worth 40 % of
that usage (:mod:`bench.month.purchases`), and simulates it with NodePools that may launch spot and on-demand nodes,
once where commitments count and once where they don't. ``--save`` saves into committed.json what :func:`run` reports.

The bill is compared with two optima (:mod:`bench.month.capacity_program`), both with the commitments' fees: one for the
capacity that Tenon's nodes have at each moment, so that only what pays it differs; and one for the pods' requests in
each minute. Both ignore that nodes can't be split, the second also boots and that pods can't be split, which no
scheduler can. Where that isn't what the figure is about, the load "whole nodes" has pods that each fill a node: its
nodes are given by the load, and what is left to decide is which of them are committed, on demand or spot.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import asdict

from bench import saved_figures
from bench.month import bill, load_generator, price_bound, purchases
from bench.month.capacity_program import CapacityProgram
from bench.month.catalog import DEFAULT_POOL, POOLS, RESOURCES, month_catalog
from bench.month.load_generator import DAY, HOUR, Services
from bench.month.load_trace import Trace
from bench.month.simulated_cluster import SimulatedCluster
from bench.month.tenon_rules import TenonRules
from shared.api.labels import ON_DEMAND, SPOT
from shared.base.struct import Struct, with_fields
from shared.commitments import balance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from bench.month.bill import NodeSpan, RunningNodes
    from bench.month.catalog import Catalog
    from shared.commitments.commitment import Commitments

RESULTS = Path(__file__).parent / "committed.json"
SHARE = 0.4
TARGET = 1.02
WHOLE_NODES = "whole nodes"
LOADS = (WHOLE_NODES, "services", "batch")
SEED, DAYS, WORKERS = 1, 30, 2
SETS = 20
"""Sets of nodes that each search may evaluate. With a few, as in the other months, it misses spot nodes that a
commitment could replace where it has a hundred nodes to look at."""
INTERVAL = 1800
"""Seconds between searches: three times as long as in the other months, as each takes five times as long."""
BOTH = (SPOT, ON_DEMAND)
_WHOLE_NODE_SERVICES = (Services(count=12, replicas=6, updates_a_week=0.5),)
_FILLED = ("c6a.2xlarge", "r6a.2xlarge")
"""What a pod fills: all types of the catalog with as many vCPUs and as much memory have the same room. Nodes between
both are left out, because the optimum would split their pods among these two."""
_GIB_A_CPU = 4
_STEP = 60
"""Seconds of a step. A pod counts in whole steps from two minutes after its creation, so steps of five minutes, as in
bench/month/price_bound.py, would leave out 1.3 % of the load of whole nodes; these leave out 0.6 %."""


class Outcome(Struct, kw_only=True):
    """USD of a load's days.

    ``usage`` is without commitments and without spot. ``fees`` are the commitments', ``unused`` the part of them that
    covers nothing. ``dollars`` is the bill with the fees, ``unaware_dollars`` that of decisions that don't count
    commitments. ``capacity_bound`` and ``requests_bound`` are the optima, with the fees. ``committed_share`` is what
    the commitments are worth, of the usage.
    """

    load: str
    seed: int
    days: float
    usage: float
    committed_share: float
    fees: float
    unused: float
    dollars: float
    unaware_dollars: float
    capacity_bound: float
    requests_bound: float
    moved: int


# --- the loads ---


def generate(load: str, *, seed: int, seconds: int) -> Trace:
    """The trace of a load by its name."""
    if load != WHOLE_NODES:
        return load_generator.generate(load, seed=seed, seconds=seconds)
    rng = random.Random(f"{load} {seed}")  # noqa: S311 (a load, no secrets)
    trace = load_generator.generate_parts(_WHOLE_NODE_SERVICES, rng, seconds)
    offerings = month_catalog(BOTH).offerings[DEFAULT_POOL]
    compute, memory = (offerings.free[offerings.row[name]] for name in _FILLED)
    pods = []
    for pod in trace.pods:
        free = memory if pod.memory / 1024 >= _GIB_A_CPU * pod.cpu / 1000 else compute
        pods.append(with_fields(pod, cpu=int(free[0]), memory=int(free[1]) // 2**20))
    return Trace(pods=tuple(pods))


# --- the bill and its optima ---


def on_demand_bill(commitments: Commitments, prices: Mapping[str, float]) -> Callable[[RunningNodes], balance.Bill]:
    """The bill of the on-demand nodes among those that run, at these prices by instance type."""

    def of(running: RunningNodes) -> balance.Bill:
        usage: Counter[tuple[str, str]] = Counter()
        for (instance_type, zone, capacity_type), number in running.items():
            if capacity_type == ON_DEMAND:
                usage[instance_type, zone] += number
        return balance.bill(commitments, usage, prices)

    return of


def rate(commitments: Commitments, catalog: Catalog) -> Callable[[RunningNodes], float]:
    """USD per hour of running nodes, with the commitments' fees."""
    on_demand = on_demand_bill(commitments, purchases.on_demand_prices(catalog))
    price = bill.list_price(catalog)

    def total(running: RunningNodes) -> float:
        spot = {offering: number for offering, number in running.items() if offering[2] == SPOT}
        return on_demand(running).total + price(spot)

    return total


def capacity(catalog: Catalog, running: RunningNodes) -> NDArray[np.float64]:
    """The room of running nodes by pool and resource, without that for numbers of pods, which nobody buys."""
    room = np.zeros((len(POOLS), len(RESOURCES)))
    for (instance_type, _, _), number in running.items():
        for i, pool in enumerate(POOLS):
            offerings = catalog.offerings[pool]
            if instance_type in offerings.row:
                room[i] += number * offerings.free[offerings.row[instance_type]]
    room[:, RESOURCES.index("pods")] = 0
    return room


def capacity_bound(spans: Sequence[NodeSpan], program: CapacityProgram, catalog: Catalog) -> float:
    """USD of the cheapest instances with the capacity of these nodes at each moment, without the fees."""
    return bill.dollars(spans, lambda running: program.least_rate(capacity(catalog, running)))


def requests_bound(trace: Trace, program: CapacityProgram, *, seconds: int) -> float:
    """USD of the cheapest instances for the pods' requests in each minute, without the fees."""
    by_step = price_bound.needs(trace, seconds=seconds, step=_STEP).transpose(1, 0, 2)
    return sum(program.least_rate(np.ascontiguousarray(need)) for need in by_step) * _STEP / HOUR


# --- the simulation ---


def simulate(load: str, *, seed: int, seconds: int) -> Outcome:
    """The outcome of a load's first seconds."""
    trace = generate(load, seed=seed, seconds=seconds)
    catalog = month_catalog(BOTH)
    prices = purchases.on_demand_prices(catalog)

    def spans_of(rules: TenonRules, capacity_types: tuple[str, ...] = BOTH) -> tuple[Sequence[NodeSpan], int]:
        record = SimulatedCluster(trace, month_catalog(capacity_types), rules, seed=seed, seconds=seconds).run()
        return record.spans, record.moved

    uncommitted, _ = spans_of(TenonRules(interval=INTERVAL), (ON_DEMAND,))
    usage = bill.dollars(uncommitted, bill.list_price(catalog))
    commitments = purchases.commitments_for(uncommitted, prices, share=SHARE, seconds=seconds)
    spans, moved = spans_of(TenonRules(sets=SETS, interval=INTERVAL, commitments=commitments))
    unaware, _ = spans_of(TenonRules(sets=SETS, interval=INTERVAL))
    on_demand = on_demand_bill(commitments, prices)
    fees = on_demand({}).committed * seconds / HOUR
    program = CapacityProgram(catalog, commitments)
    total = rate(commitments, catalog)
    return Outcome(
        load=load,
        seed=seed,
        days=seconds / DAY,
        usage=usage,
        committed_share=purchases.worth(commitments, prices) * seconds / HOUR / usage,
        fees=fees,
        unused=bill.dollars(spans, lambda running: on_demand(running).unused),
        dollars=bill.dollars(spans, total),
        unaware_dollars=bill.dollars(unaware, total),
        capacity_bound=fees + capacity_bound(spans, program, catalog),
        requests_bound=fees + requests_bound(trace, program, seconds=seconds),
        moved=moved,
    )


def measure(loads: Sequence[str], seconds: int) -> Iterator[Outcome]:
    """The outcome of each load, in two processes."""
    month_catalog(BOTH)  # fetched and cached before there are several processes
    with ProcessPoolExecutor(WORKERS) as pool:
        running = [pool.submit(simulate, load, seed=SEED, seconds=seconds) for load in loads]
        for future in running:
            yield future.result()


# --- the results ---


def save(outcome: Outcome) -> None:
    """Save an outcome in place of the load's earlier one."""
    saved = _saved() | {
        outcome.load: {k: round(v, 4) if isinstance(v, float) else v for k, v in asdict(outcome).items()}
    }
    saved_figures.write(RESULTS, saved)


def _saved() -> dict[str, dict[str, Any]]:
    return saved_figures.read(RESULTS)


def run() -> list[dict[str, str]]:
    """The rows of the saved outcomes."""
    return [row for saved in _saved().values() for row in _rows(Outcome(**saved))]


def _rows(outcome: Outcome) -> list[dict[str, str]]:
    target = f"at most {TARGET:.0%}"
    how = (
        f"{outcome.days:g} days, seed {outcome.seed}; `python -m bench.month.committed --save --days {outcome.days:g}`"
    )
    rows = [
        ("dollars, relative to the optimum for the same capacity", target, _ratio(outcome, outcome.capacity_bound)),
        (
            "dollars, relative to the optimum for the pods' requests",
            target if outcome.load == WHOLE_NODES else "-",
            _ratio(outcome, outcome.requests_bound),
        ),
        (
            "committed share of the usage, and unused share of the commitments' fees",
            "-",
            f"{outcome.committed_share:.1%}, {outcome.unused / outcome.fees:.2%}",
        ),
        (
            "dollars, relative to decisions that don't count commitments",
            "-",
            f"{outcome.dollars / outcome.unaware_dollars:.1%} (${outcome.unaware_dollars:.0f})",
        ),
    ]
    return [
        {"measurement": f"{outcome.load}: {measurement}", "target": of, "result": result, "method": how}
        for measurement, of, result in rows
    ]


def _ratio(outcome: Outcome, optimum: float) -> str:
    without_fees = (outcome.dollars - outcome.fees) / (optimum - outcome.fees)
    return (
        f"{outcome.dollars / optimum:.1%} (${outcome.dollars:.0f} to ${optimum:.0f}); without fees {without_fees:.1%}"
    )


def main(arguments: Sequence[str]) -> int:
    """Simulate the loads."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.month.committed", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--days", type=float, default=DAYS, help="how many days are simulated")
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS))
    parser.add_argument("--save", action="store_true", help=f"save the outcomes into bench/month/{RESULTS.name}")
    options = parser.parse_args(arguments)
    for outcome in measure(options.loads, round(options.days * DAY)):
        for row in _rows(outcome):
            print(f"{row['measurement']}: {row['result']}", flush=True)
        if options.save:
            save(outcome)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
