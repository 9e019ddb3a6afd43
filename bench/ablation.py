"""What each heuristic earns: prices and time with one pass at a time left out, relative to those with all passes.

``python -m bench.ablation`` solves the recorded scenarios, and simulates a day of generated load in bench/month with
two seeds, once with all passes and once without each. It prints the tables of docs/scheduling.md. ``--sets real``
applies the workloads a and c of bench/real.py to a real control plane instead. A pass is left out by putting its
identity in its place, so the product has no switch for it. Each run has a process of its own, so that no cache is
shared.
"""

from __future__ import annotations

import argparse
import inspect
import math
import multiprocessing
import pkgutil
import random
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import real, scheduling
from bench.month import comparison, load_generator
from bench.month.load_generator import DAY, Services, Tasks
from bench.month.tenon_rules import TenonRules
from local.aws.backends import replaced
from shared.base.struct import Struct
from shared.scheduling.nominations.nomination_order import NominationOrder
from shared.scheduling.scheduler import schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

SEEDS = (1, 2)
LOAD = (
    Services(count=8, replicas=8, zone_spread_share=0.3),
    Tasks(an_hour=12, arrays_a_day=4, array=15, duration=45 * 60, spread=1.2),
    Tasks(an_hour=3, arrays_a_day=1, array=4, duration=20 * 60, spread=1.2, gpus=True),
)
"""The generated load: services, batch and GPUs on spot and on-demand nodes."""
REAL_WORKLOADS = ("a", "c")
ALL = "nothing"
_SOLVER = "shared.scheduling.solver"
_NOMINATIONS = "shared.scheduling.nominations"
_PORTFOLIO = f"{_SOLVER}.portfolio"
_EQUAL = 1e-9


# --- the passes ---


class Pass(Struct, kw_only=True):
    """A heuristic: ``at`` is what its ``identity`` takes the place of, ``code`` what would go with it.

    Both are names like ``package.module:Class.method``. ``sets`` are those whose figures it can change.
    """

    name: str
    at: str
    identity: Callable[..., Any]
    code: tuple[str, ...]
    sets: tuple[str, ...] = ("scenarios", "days", "real")

    def lines(self) -> int:
        """The source lines that aren't blank."""
        sources = (inspect.getsourcelines(pkgutil.resolve_name(name))[0] for name in self.code)
        return sum(1 for lines in sources for line in lines if line.strip())

    def left_out(self) -> Any:
        """While entered, the pass does nothing."""
        module, _, path = self.at.partition(":")
        owner, _, attribute = path.rpartition(".")
        return replaced(pkgutil.resolve_name(f"{module}:{owner}" if owner else module), attribute, self.identity)


def _nothing(*_: object, **__: object) -> None:
    return None


def _no_plans(*_: object) -> list[object]:
    return []


def _first(plan: object, _: object) -> object:
    return plan


def _all_by_price(free: NDArray[np.int64], price: NDArray[np.float64]) -> NDArray[np.int64]:
    """All launch options, in the order in which the undominated ones would be."""
    return np.lexsort((np.arange(len(price)), -free.sum(1), price))


def _no_taints(requested: NDArray[np.int64], *_: object, **__: object) -> NDArray[np.int64]:
    return np.zeros(len(requested), np.int64)


def _as_planned(
    _: object, planned: Mapping[str, str], pods: Mapping[str, object], open_nodes: Sequence[str]
) -> NominationOrder:
    """Every planned pod is nominated for its node as soon as that is open."""
    return NominationOrder({key: n for key, n in planned.items() if key in pods and n in open_nodes}, {})


PASSES = (
    Pass(
        name="local search",
        at=f"{_SOLVER}.local_search:LocalSearch.run",
        identity=_nothing,
        code=(f"{_SOLVER}.local_search", f"{_SOLVER}.repacking"),
    ),
    Pass(
        name="repacking",
        at=f"{_SOLVER}.repacking:Repacker.cheapest",
        identity=_nothing,
        code=(f"{_SOLVER}.repacking",),
    ),
    Pass(
        name="option sets without dominated options",
        at=f"{_SOLVER}.packing:undominated",
        identity=_all_by_price,
        code=(f"{_SOLVER}.packing:OptionSets._undominated",),
    ),
    Pass(
        name="plans: preferred domains",
        at=f"{_PORTFOLIO}:_Portfolio._plans_of_domains",
        identity=_no_plans,
        code=(f"{_PORTFOLIO}:_Portfolio._plans_of_domains", f"{_PORTFOLIO}:_domains_of_rules"),
    ),
    Pass(
        name="plans: fewer replicas on a host",
        at=f"{_PORTFOLIO}:_Portfolio._plans_with_fewer_replicas",
        identity=_no_plans,
        code=(f"{_PORTFOLIO}:_Portfolio._plans_with_fewer_replicas",),
    ),
    Pass(
        name="plans: first fit",
        at=f"{_PORTFOLIO}:_Portfolio._first_fit_plans",
        identity=_no_plans,
        code=(
            f"{_SOLVER}.first_fit",
            f"{_SOLVER}.growing_bins",
            *(f"{_PORTFOLIO}:{f}" for f in ("_Portfolio._first_fit_plans", "schedule_by_first_fit", "_fair")),
        ),
    ),
    Pass(
        name="plans: without preferences",
        at=f"{_PORTFOLIO}:_or_without_preferences",
        identity=_first,
        code=(f"{_PORTFOLIO}:_or_without_preferences",),
    ),
    Pass(
        name="plans: one host each",
        at=f"{_PORTFOLIO}:_or_one_host_each",
        identity=_first,
        code=(f"{_PORTFOLIO}:_or_one_host_each",),
    ),
    Pass(
        name="nomination order",
        at=f"{_NOMINATIONS}.nomination_order:order_nominations",
        identity=_as_planned,
        code=(f"{_NOMINATIONS}.nomination_order",),
        sets=("real",),
    ),
    Pass(
        name="soft taints",
        at="shared.disruption.soft_taints:taint_counts",
        identity=_no_taints,
        code=("shared.disruption.soft_taints", "functions.disruption.soft_taints"),
        sets=("days",),
    ),
)
BY_NAME = {p.name: p for p in PASSES}


# --- what is measured ---


class Figures(Struct, kw_only=True):
    """Prices by case in USD (per hour, or of the day), the pods without a node by case, and seconds.

    ``moved`` are pods that consolidation moved. ``seconds`` are of processor time, or until all pods run.
    """

    prices: Mapping[str, float]
    seconds: float
    without_node: Mapping[str, int] = {}
    moved: int = 0


def scenarios() -> Figures:
    """Each recorded scenario, decided once."""
    prices, without_node, seconds = {}, {}, 0.0
    for name, problem in scheduling.problems():
        began = time.process_time()
        decision = schedule(problem)
        seconds += time.process_time() - began
        prices[name] = sum(c.cheapest.price for c in decision.new_node_claims)
        without_node[name] = len(decision.pod_errors)
    return Figures(prices=prices, without_node=without_node, seconds=seconds)


def days() -> Figures:
    """A day of the generated load under Tenon's rules, with each seed."""
    outcomes = {}
    for seed in SEEDS:
        trace = load_generator.generate_parts(LOAD, random.Random(seed), DAY)  # noqa: S311 (a load, no secrets)
        outcomes[f"seed {seed}"] = comparison.simulate(
            trace, TenonRules(), capacity_types=("spot", "on-demand"), seed=seed, seconds=DAY
        )
    return Figures(
        prices={name: o.dollars for name, o in outcomes.items()},
        moved=sum(o.moved for o in outcomes.values()),
        seconds=sum(o.processor_seconds for o in outcomes.values()),
    )


def real_workloads() -> Figures:
    """The workloads on a real control plane: the price of what was bought, when all pods run."""
    measured = {name: real.measure(name) for name in REAL_WORKLOADS}
    return Figures(
        prices={name: m.realised for name, m in measured.items()}, seconds=sum(m.all for m in measured.values())
    )


SETS: Mapping[str, Callable[[], Figures]] = {"scenarios": scenarios, "days": days, "real": real_workloads}


def measure(set_: str, left_out: str) -> Figures:
    """The figures of a set without the pass of that name; with all for :data:`ALL`."""
    with ExitStack() as stack:
        if left_out != ALL:
            stack.enter_context(BY_NAME[left_out].left_out())
        return SETS[set_]()


# --- the table ---

_COLUMNS = (
    "left out",
    "lines",
    "sum of prices",
    "mean of cases",
    "cases that are cheaper, more expensive",
    "largest change",
    "more pods without a node",
    "moved pods",
    "time",
)


def row(name: str, full: Figures, without: Figures) -> str:
    """A row of the Markdown table: a pass and what changes without it.

    Prices are compared where as many pods have a node: their sum, and the geometric mean of the cases' ratios.
    """
    same = [c for c in full.prices if without.without_node.get(c, 0) == full.without_node.get(c, 0)]
    changes = {c: without.prices[c] / full.prices[c] - 1 for c in same if full.prices[c] > 0}
    largest = max(changes, key=lambda c: abs(changes[c]), default="")
    more = sum(without.without_node.values()) - sum(full.without_node.values())
    price = sum(without.prices[c] for c in same) / sum(full.prices[c] for c in same) - 1
    mean = math.exp(statistics.fmean(math.log1p(change) for change in changes.values())) - 1
    cells = (
        name,
        str(BY_NAME[name].lines()) if name in BY_NAME else "",
        _percent(price),
        _percent(mean),
        f"{sum(c < -_EQUAL for c in changes.values())}, {sum(c > _EQUAL for c in changes.values())}",
        f"{_percent(changes[largest])} ({largest})" if abs(changes.get(largest, 0)) > _EQUAL else "-",
        f"{more} in {len(full.prices) - len(same)}" if len(same) < len(full.prices) else "-",
        _percent(without.moved / full.moved - 1) if full.moved else "-",
        f"{without.seconds / full.seconds:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def _percent(change: float) -> str:
    return f"{change:+.2%}"


def main(arguments: Sequence[str]) -> int:
    """Measure the passes on the sets, and print a table for each set."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.ablation", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=["scenarios", "days"])
    parser.add_argument("--passes", nargs="+", choices=list(BY_NAME), default=list(BY_NAME), metavar="PASS")
    options = parser.parse_args(arguments)
    spawn = multiprocessing.get_context("spawn")
    for set_ in options.sets:
        with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
            full = pool.submit(measure, set_, ALL).result()
            print(f"\n{set_}: {sum(full.prices.values()):.2f} USD, {full.seconds:.1f} s, {full.moved} pods moved\n")
            print(f"| {' | '.join(_COLUMNS)} |\n|{'---|' * len(_COLUMNS)}", flush=True)
            for name in (ALL, *(n for n in options.passes if set_ in BY_NAME[n].sets)):
                without = pool.submit(measure, set_, name).result()
                print(row(name, full, without), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
