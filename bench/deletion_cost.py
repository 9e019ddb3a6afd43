"""Pod deletion cost: evictions and dollars where ReplicaSets delete pods of the nodes first that are to go anyway.

The ReplicaSet controller deletes pods of a lower ``controller.kubernetes.io/pod-deletion-cost`` first. A local cluster
runs the 1,000 pods of bench.scale_in, and something writes these costs each minute: nothing, the pods of nodes with a
soft taint, or pods of all nodes by rank, as Karpenter's alpha controller does (the higher a node's price per pod, the
sooner its pods go; 50 nodes at most). Then the load falls, or rises and falls again and again.

``python -m bench.deletion_cost [SEED …]`` measures, and saves into deletion_cost.json what :func:`run` reports.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from bench import saved_figures, scale_in
from functions.disruption import savings_search
from local.aws.backends import replaced
from local.kubernetes import kinds
from local.world import Options, World, sample_objects
from shared.api.labels import DELETION_CANDIDATE_TAINT, INSTANCE_PREFIX, POD_DELETION_COST
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RESULTS = Path(__file__).parent / "deletion_cost.json"
RULES = ("nothing", "soft taints", "ranks")
MAX_NODES = 50
MINUTE = timedelta(minutes=1)
_BEFORE = 10
"""Minutes at full load."""


class Scenario(Struct, kw_only=True):
    """The replicas of each of the 20 Deployments, one number for each ``period`` of minutes.

    ``cpus`` are the sizes of the NodePool's instance types; empty: any.
    """

    name: str
    replicas: tuple[int, ...]
    period: int
    cpus: tuple[str, ...] = ()


SCENARIOS = (
    Scenario(name="1,000 → 300", replicas=(15,), period=60),
    Scenario(name="1,000 ⇄ 700 each 10 min", replicas=(35, 50) * 2, period=10),
    Scenario(name="1,000 → 300 on small nodes", replicas=(15,), period=30, cpus=("4", "8")),
)


class Outcome(Struct, kw_only=True):
    """``moved`` counts pods that were created to succeed evicted ones, ``written`` the costs that were written."""

    dollars: float
    price_after: float
    moved: int
    launched: int
    written: int


def measure(rule: str, scenario: Scenario, seed: int) -> Outcome:
    """What a rule costs from the first change of the load on."""
    with (
        replaced(savings_search, "_SEARCH_TIMEOUT", timedelta(seconds=1)),
        World(seed=seed, options=Options(elapsed=time.process_time, latencies=None)) as world,
    ):
        world.apply([sample_objects.node_class(world), _pool(scenario), *scale_in.deployments()])
        pods = scale_in.DEPLOYMENTS * scale_in.REPLICAS
        world.run_until(lambda: len(world.pods(phase="Running")) == pods, limit=timedelta(minutes=30))
        prices = scale_in.Prices(world)
        written = _run(world, rule, prices, minutes=_BEFORE)
        start, events, running = world.clock.now(), len(world.timeline.all), scale_in.REPLICAS
        wanted = 0
        for replicas in scenario.replicas:
            wanted += scale_in.DEPLOYMENTS * max(0, replicas - running)
            running = replicas
            scale_in.scale(world, replicas)
            written += _run(world, rule, prices, minutes=scenario.period)
        after = world.timeline.all[events:]
        created = sum(e.type == "pod created" and e.name.startswith("default/") for e in after)
        return Outcome(
            dollars=round(prices.dollars(start, world.clock.now()), 4),
            price_after=round(prices.per_hour(world.clock.now()), 4),
            moved=created - wanted,
            launched=sum(e.type == "claim launched" for e in after),
            written=written,
        )


def _pool(scenario: Scenario) -> dict[str, Any]:
    pool = scale_in.pool()
    if scenario.cpus:
        sizes = {"key": f"{INSTANCE_PREFIX}cpu", "operator": "In", "values": list(scenario.cpus)}
        pool["spec"]["template"]["spec"]["requirements"].append(sizes)
    return pool


def _run(world: World, rule: str, prices: scale_in.Prices, *, minutes: int) -> int:
    """Let the minutes pass, with new costs at the end of each; returns how many were written."""
    written = 0
    for _ in range(minutes):
        world.run_for(MINUTE)
        written += _write(world, _costs(world, rule, prices))
    return written


def _costs(world: World, rule: str, prices: scale_in.Prices) -> Mapping[str, int]:
    """The cost of the pods of each node; 0 of other nodes."""
    if rule == "nothing":
        return {}
    if rule == "soft taints":
        tainted = (n for n in world.nodes() if any(t["key"] == DELETION_CANDIDATE_TAINT for t in _taints(n)))
        return {n["metadata"]["name"]: -1 for n in tainted}
    pods = _pods_by_node(world)
    prices_of = {n["metadata"]["name"]: prices.of_labels(n["metadata"]["labels"]) for n in world.nodes()}
    ranked = sorted(prices_of, key=lambda name: (-prices_of[name] / (1 + len(pods[name])), name))[:MAX_NODES]
    return {name: rank - len(ranked) for rank, name in enumerate(ranked)}


def _write(world: World, costs: Mapping[str, int]) -> int:
    written = 0
    for name, pods in _pods_by_node(world).items():
        cost = str(costs[name]) if costs.get(name) else None
        for pod in pods:
            if (pod["metadata"].get("annotations") or {}).get(POD_DELETION_COST) != cost:
                change = {"metadata": {"annotations": {POD_DELETION_COST: cost}}}
                world.store.patch(kinds.PODS, pod["metadata"]["name"], change, namespace="default")
                written += 1
    return written


def _pods_by_node(world: World) -> Mapping[str, list[dict[str, Any]]]:
    """The pods of the Deployments that run, by node."""
    pods: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for pod in world.pods():
        meta = pod["metadata"]
        if meta["namespace"] == "default" and pod["spec"].get("nodeName") and "deletionTimestamp" not in meta:
            pods[pod["spec"]["nodeName"]].append(pod)
    return pods


def _taints(node: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return node["spec"].get("taints") or ()


def saved() -> dict[str, dict[str, Any]]:
    """The saved outcomes by scenario, seed and rule."""
    return saved_figures.read(RESULTS)


def run() -> list[dict[str, str]]:
    """The rows of the saved outcomes."""
    outcomes = saved()
    rows = []
    for scenario in SCENARIOS:
        for rule in RULES:
            of_rule = [o for key, o in outcomes.items() if key.startswith(f"{scenario.name}, ") and key.endswith(rule)]
            if of_rule:
                each = (f"{o['moved']} moved, ${o['dollars']:.2f}, {o['written']:,} writes" for o in of_rule)
                rows.append(
                    {
                        "measurement": f"{scenario.name}: costs by {rule}",
                        "target": "fewer moved pods",
                        "result": "; ".join(each),
                        "method": "local world, consolidateAfter 30s; `python -m bench.deletion_cost`",
                    }
                )
    return rows


def main(arguments: list[str]) -> None:
    """Measure these seeds, by default 0."""
    for seed in [int(a) for a in arguments] or [0]:
        for scenario in SCENARIOS:
            for rule in RULES:
                outcome = measure(rule, scenario, seed)
                outcomes = {**saved(), f"{scenario.name}, seed {seed}, {rule}": asdict(outcome)}
                saved_figures.write(RESULTS, outcomes, sort_keys=True)
                print(f"  {scenario.name}, seed {seed}, {rule}: {outcome}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
