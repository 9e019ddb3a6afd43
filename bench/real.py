"""What becomes of a plan on a real control plane, in real time: prices, and seconds until pods run.

Each workload is applied at once to an empty cluster whose nodes are Ready 30 to 40 s after their launch. The scheduler
and the controllers are upstream's, so that pods are placed as a cluster places them.

``python -m bench.real a b mix-1`` measures some workloads, ``python -m bench.real off a`` does so without nominations,
``--kubernetes 1.37`` on that minor. What :func:`run` reports is saved into real.json. A run takes two minutes.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from msgspec.structs import asdict

from bench import saved_figures
from local.kubelets.behavior import Timing
from local.real import binary
from local.real.cluster import RealControlPlane
from local.real.placements import Placements
from local.world import Options, World, sample_objects
from shared.api import labels
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from local.aws.invocation import Invocation
    from local.aws.prices import Prices
    from local.kubernetes.objects import Change, Obj
    from local.world import TimelineEvent

RESULTS = Path(__file__).parent / "real.json"
WORKLOADS = Path(__file__).parent / "workloads"
NAMES = ("a", "b", "c", "mix-1", "mix-2", "mix-3", "mix-4", "mix-5")
READY = Timing(boot=(26.0, 35.0), ready=(4.0, 5.0))
_CONCURRENCY = 8
_LIMIT = timedelta(minutes=8)
_QUIET = timedelta(seconds=3)
_ROUND_GAP = timedelta(seconds=5)
"""After the first round, machines that are bought within this time of each other are of one round."""
_CLAIM = "NodeClaim"
NOMINATED, OFF = "nominated", "off"
"""Values of the option plannedPods. Off: kube-scheduler fills nodes in its own order."""
Row = dict[str, str]


class Measured(Struct, kw_only=True):
    """One workload. Prices in USD per hour, times in seconds after the workload was applied.

    ``planned`` and ``bought`` are of the first round: of the cheapest offerings of its NodeClaims, and of the instances
    that these became. ``realised`` is the price of all instances when all pods run. ``batches`` is the number of
    decisions that bought machines, ``rounds`` without those made before any machine was up.
    """

    workload: str
    pods: int
    planned: float
    bought: float
    realised: float
    half: float
    most: float
    all: float
    slowest_node_ready: float
    nodes: int
    rounds: int
    batches: int
    violations: int
    denied: int
    failures: int


class Purchases:
    """The NodeClaims of a world as they are created, and the instances that they become."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._zones = sorted(world.aws.account.subnets)
        self.created: dict[str, datetime] = {}
        self.planned: dict[str, float] = {}
        self.bought: dict[str, float] = {}
        world.store.subscribe(self._observe)

    def _observe(self, change: Change) -> None:
        if change.kind.kind != _CLAIM:
            return
        name = change.object["metadata"]["name"]
        prices = self._world.aws.prices
        if change.type == "ADDED":
            self.created[name] = self._world.clock.now()
            self.planned[name] = cheapest_offering(change.object, prices, self._zones)
        if name not in self.bought and change.object.get("status", {}).get("providerID"):
            meta = change.object["metadata"]["labels"]
            offering = meta[labels.INSTANCE_TYPE], meta[labels.ZONE], meta[labels.CAPACITY_TYPE]
            self.bought[name] = _price(prices, *offering)

    def rounds(self, first_node: datetime) -> list[list[str]]:
        """The NodeClaims' names by round: those created before the first node was up, and then by their times."""
        rounds: list[list[str]] = [[name for name, at in self.created.items() if at <= first_node]]
        last = first_node
        for name, at in sorted(self.created.items(), key=lambda item: item[1]):
            if at <= first_node:
                continue
            if len(rounds) == 1 or at - last > _ROUND_GAP:
                rounds.append([])
            rounds[-1].append(name)
            last = at
        return rounds


def cheapest_offering(claim: Obj, prices: Prices, zones: Sequence[str]) -> float:
    """The price of the cheapest offering that a NodeClaim's requirements allow, in USD per hour."""
    values = {r["key"]: r.get("values") or [] for r in claim["spec"]["requirements"] if r["operator"] == "In"}
    return min(
        _price(prices, instance_type, zone, capacity_type)
        for instance_type in values[labels.INSTANCE_TYPE]
        for zone in values.get(labels.ZONE, zones)
        for capacity_type in values.get(labels.CAPACITY_TYPE, ["on-demand"])
    )


def _price(prices: Prices, instance_type: str, zone: str, capacity_type: str) -> float:
    return prices.spot(instance_type, zone) if capacity_type == "spot" else prices.on_demand(instance_type)


def run() -> list[Row]:
    """The rows of the saved runs, those of one workload together."""
    runs = [(key, Measured(**fields)) for key, fields in saved().items()]
    return [_row(key, run) for key, run in sorted(runs, key=lambda entry: (NAMES.index(entry[1].workload), entry[0]))]


def saved() -> dict[str, dict[str, Any]]:
    """The saved runs by workload; further words of the key say how they differ from the default."""
    return saved_figures.read(RESULTS)


def save(measured: Measured, planned_pods: str, kubernetes: str = binary.EMBEDDED) -> None:
    """Save a run with the others."""
    key = measured.workload if planned_pods == NOMINATED else f"{measured.workload}, plannedPods={planned_pods}"
    if kubernetes != binary.EMBEDDED:
        key = f"{key}, Kubernetes {kubernetes}"
    runs = {**saved(), key: asdict(measured)}
    saved_figures.write(RESULTS, runs, sort_keys=True)


def measure(name: str, planned_pods: str = NOMINATED, *, kubernetes: str = binary.EMBEDDED) -> Measured:
    """Apply a workload to an empty cluster, and wait until all its pods run."""
    objects = workload(name)
    plane = RealControlPlane(kubernetes=kubernetes)
    options = Options(
        version=plane.kubernetes,
        concurrency=_CONCURRENCY,
        timing=READY,
        control_plane=lambda: plane,
        context={"plannedPods": planned_pods},
    )
    with World(options=options) as world:
        world.apply(WORKLOADS / "node-class.yaml")
        world.apply(WORKLOADS / "node-pool.yaml")
        world.run_until(lambda: _is_ready(world), limit=timedelta(minutes=1))
        purchases = Purchases(world)
        placements = Placements(world.store, now=world.clock.now)
        pods = sum(obj["spec"]["replicas"] for obj in objects)
        running: list[TimelineEvent] = []
        world.timeline.subscribe(lambda event: running.append(event) if event.type == "pod running" else None)
        began = world.clock.now()
        world.apply(objects)
        world.run_until(lambda: len(running) >= pods, limit=_LIMIT)
        world.run_for(_QUIET)
        return _measured(name, pods, world, began, purchases, placements)


def _measured(
    name: str, pods: int, world: World, began: datetime, purchases: Purchases, placements: Placements
) -> Measured:
    running = sorted((event.at - began).total_seconds() for event in world.timeline.of("pod running"))
    rounds = purchases.rounds(world.timeline.of("node registered")[0].at)
    prices = world.aws.prices
    return Measured(
        workload=name,
        pods=pods,
        planned=round(sum(purchases.planned[claim] for claim in rounds[0]), 4),
        bought=round(sum(purchases.bought[claim] for claim in rounds[0]), 4),
        realised=round(
            sum(
                _price(prices, i.instance_type, i.availability_zone, "spot" if i.lifecycle == "spot" else "on-demand")
                for i in world.instances()
            ),
            4,
        ),
        half=round(running[pods // 2 - 1], 1),
        most=round(running[-(-pods * 99 // 100) - 1], 1),
        all=round(running[pods - 1], 1),
        slowest_node_ready=round(max((e.at - began).total_seconds() for e in world.timeline.of("node ready")), 1),
        nodes=len(world.nodes()),
        rounds=len(rounds),
        batches=sum(_bought_in(invocation, purchases) for invocation in world.aws.functions.invocations),
        violations=len(placements.violations()),
        denied=len(world.denied_requests()),
        failures=len(world.failures()),
    )


def _bought_in(invocation: Invocation, purchases: Purchases) -> bool:
    """Whether the invocation of the provisioner created NodeClaims."""
    end = invocation.at + timedelta(seconds=invocation.latency)
    return invocation.function == "provisioner" and any(invocation.at <= at <= end for at in purchases.created.values())


def _is_ready(world: World) -> bool:
    pools = world.store.list(world.store.kind("karpenter.sh/v1", "NodePool"))
    return all(
        any(c["type"] == "Ready" and c["status"] == "True" for c in pool.get("status", {}).get("conditions") or [])
        for pool in pools
    )


def workload(name: str) -> list[Obj]:
    """The Deployments of a workload: of a file, or random ones for "mix-SEED"."""
    kind, _, seed = name.partition("-")
    if kind == "mix":
        return list(random_mix(int(seed)))
    documents: list[Any] = list(yaml.safe_load_all((WORKLOADS / f"{name}.yaml").read_text()))
    return [document for document in documents if document]


def random_mix(seed: int) -> list[Obj]:
    """Deployments of random sizes, 400 to 600 pods; some spread over zones, some with anti-affinity on hosts."""
    draw = random.Random(seed)  # noqa: S311 - the same workload each time
    objects = []
    for index in range(25):
        name = f"mix-{index:02d}"
        requests = {
            "cpu": f"{draw.choice((50, 100, 250, 500, 750, 1000, 1500, 2000))}m",
            "memory": f"{draw.choice((128, 256, 512, 1024, 2048, 4096))}Mi",
        }
        objects.append(sample_objects.deployment(name, draw.randint(4, 36), requests, **_rules(name, draw)))
    return objects


def _rules(name: str, draw: random.Random) -> dict[str, Any]:
    selector = {"matchLabels": {"app": name}}
    kind = draw.random()
    if kind < 0.2:
        spread = {"maxSkew": 1, "topologyKey": labels.ZONE, "whenUnsatisfiable": "DoNotSchedule"}
        return {"topologySpreadConstraints": [{**spread, "labelSelector": selector}]}
    if kind < 0.28:
        term = {"topologyKey": labels.HOSTNAME, "labelSelector": selector}
        return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    return {}


def _row(key: str, measured: Measured) -> Row:
    realised, bought = measured.realised / measured.bought, measured.bought / measured.planned
    limit = 1.25 * measured.slowest_node_ready + 10
    return {
        "measurement": f"{key}: {measured.pods} pods",
        "target": "realised 1.03 × bought (c: 1.05), bought 1.02 × planned; one round (c: two); "
        f"all running within {limit:.0f} s (1.25 × slowest node + 10 s)"
        if key == measured.workload
        else "",
        "result": f"${measured.planned:.2f}/h planned, {measured.bought:.2f} bought ({bought:.3f}), "
        f"{measured.realised:.2f} realised ({realised:.3f}); "
        f"{measured.half:.0f} / {measured.most:.0f} / {measured.all:.0f} s for 50 / 99 / 100 %; "
        f"{measured.rounds} round{'s' if measured.rounds != 1 else ''}, {measured.nodes} nodes",
        "method": f"{measured.batches} decisions that bought, {measured.violations} bindings against a rule, "
        f"{measured.denied} denied requests, {measured.failures} failed invocations",
    }


def main(arguments: list[str]) -> None:
    """Measure the named workloads, after "off" without nominations; save each and print it as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.real", description=__doc__)
    parser.add_argument("--kubernetes", choices=binary.MINORS, default=binary.EMBEDDED, help="of the control plane")
    parser.add_argument("names", nargs="*", metavar="WORKLOAD")
    options = parser.parse_args(arguments)
    planned_pods = OFF if options.names[:1] == [OFF] else NOMINATED
    names = options.names[1:] if planned_pods == OFF else options.names
    for name in names or NAMES:
        measured = measure(name, planned_pods, kubernetes=options.kubernetes)
        save(measured, planned_pods, options.kubernetes)
        print(json.dumps(asdict(measured)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
