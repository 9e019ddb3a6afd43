"""Placement: how much of a plan becomes true when kube-scheduler places the pods, and how soon all of them run.

Each workload is applied to an empty local cluster whose nodes are Ready 30 to 40 s after their launch. The local
scheduler has kube-scheduler's queue, scores and nominations. Planned is the price of the first decisions at their
cheapest offerings, bought that of the instances that were launched for them, realised that of all nodes once all pods
run. Rounds are decisions that created NodeClaims.

``-c plannedPods=off`` is measured beside the default: kube-scheduler fills nodes in its own order.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from local.world import Options, World, catalog_cache

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from local.kubernetes.objects import Change, Obj

_WORKLOADS = Path(__file__).resolve().parent / "workloads"
_SEEDS = 5
_LIMIT = timedelta(minutes=20)
_ZONE, _HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_QUANTILES = (0.5, 0.99, 1.0)


class Placement(NamedTuple):
    """Prices in USD per hour, seconds from the pool's creation until 50, 99 and 100 % of pods run, and rounds.

    ``violations`` counts bindings at which a required spread or host anti-affinity of the pod was broken.
    """

    planned: float
    bought: float
    realised: float
    nodes: int
    seconds: tuple[float, ...]
    slowest_node: float
    rounds: int
    violations: int


def run() -> list[dict[str, str]]:
    """The rows of this part."""
    workloads = {name: _load(f"{name}.yaml") for name in "abc"}
    workloads |= {f"mix {seed}": random_mix(seed) for seed in range(_SEEDS)}
    return [
        _row(name, option, measure(objects, planned_pods=option))
        for name, objects in workloads.items()
        for option in ("nominated", "off")
    ]


def measure(objects: Iterable[Mapping[str, Any]], *, planned_pods: str = "nominated", seed: int = 0) -> Placement:
    """Run the objects in a local cluster until all their pods run."""
    with World(seed=seed, options=Options(context={"plannedPods": planned_pods})) as world:
        world.apply([*_load("node-class.yaml"), *objects])
        world.run_for(timedelta(seconds=20))
        count = len(world.pending())
        bindings = _Bindings(world)
        start = world.clock.now()
        world.apply(_load("node-pool.yaml"))
        world.run_until(lambda: len(world.pods(phase="Running")) == count, limit=_LIMIT)
        return _placement(world, bindings, start)


def random_mix(seed: int) -> list[Obj]:
    """Twenty Deployments of 5 to 40 pods in random sizes; a fifth each have a zonal spread and host anti-affinity."""
    rng = random.Random(seed)  # noqa: S311 - sizes of pods
    objects = []
    for i in range(20):
        rule = rng.choice(["plain", "plain", "plain", "spread", "alone"])
        name = f"mix-{i:02}"
        replicas = rng.randint(3, 10) if rule == "alone" else rng.randint(5, 40)
        requests = {
            "cpu": f"{rng.choice([100, 250, 500, 700, 1000, 1500, 2000, 3000])}m",
            "memory": f"{rng.choice([128, 256, 512, 1024, 2048, 3072, 6144])}Mi",
        }
        objects.append(_deployment(name, replicas, requests, rule))
    return objects


def _deployment(name: str, replicas: int, requests: Mapping[str, str], rule: str) -> Obj:
    labels = {"app": name}
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "x", "resources": {"requests": dict(requests)}}]}
    selector = {"labelSelector": {"matchLabels": labels}}
    if rule == "spread":
        constraint = {"maxSkew": 1, "topologyKey": _ZONE, "whenUnsatisfiable": "DoNotSchedule", **selector}
        spec["topologySpreadConstraints"] = [constraint]
    elif rule == "alone":
        term = {"topologyKey": _HOST, **selector}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


class _Bindings:
    """Counts the bindings that violate a required rule of the pod, with the nodes that exist at that moment."""

    def __init__(self, world: World) -> None:
        self.violations = 0
        self.running: list[datetime] = []
        self._now = world.clock.now
        self._zones: dict[str, str] = {}
        self._nodes: dict[str, tuple[str, str]] = {}
        """The app and node of bound pods, by uid."""
        self._runs: set[str] = set()
        world.store.subscribe(self._change)

    def _change(self, change: Change) -> None:
        obj, uid = change.object, change.object["metadata"]["uid"]
        if change.kind.kind == "Node":
            self._zones[obj["metadata"]["name"]] = obj["metadata"].get("labels", {}).get(_ZONE, "")
        elif change.kind.kind == "Pod":
            if change.type == "DELETED":
                self._nodes.pop(uid, None)
                return
            node = obj["spec"].get("nodeName")
            if node and uid not in self._nodes:
                self.violations += self._violates(obj, node)
                self._nodes[uid] = (obj["metadata"].get("labels", {}).get("app", ""), node)
            if obj["status"].get("phase") == "Running" and uid not in self._runs:
                self._runs.add(uid)
                self.running.append(self._now())

    def _violates(self, pod: Obj, node: str) -> bool:
        app = pod["metadata"].get("labels", {}).get("app", "")
        nodes = [at for of, at in self._nodes.values() if of == app]
        if pod["spec"].get("affinity", {}).get("podAntiAffinity") and node in nodes:
            return True
        for constraint in pod["spec"].get("topologySpreadConstraints", ()):
            counts = Counter({zone: 0 for zone in self._zones.values() if zone})
            counts.update(self._zones[at] for at in nodes)
            if counts[self._zones[node]] + 1 - min(counts.values()) > constraint["maxSkew"]:
                return True
        return False


def _placement(world: World, bindings: _Bindings, start: datetime) -> Placement:
    launched = min(h.at for h in world.timeline.of("claim launched"))
    first = {h.name for h in world.timeline.of("claim created") if h.at < launched}
    logs = _provisioner_logs(world)
    planned = {line["nodeclaim"]: line["cheapest"]["price"] for line in logs if "cheapest" in line}
    prices = _prices(world)
    seconds = sorted((at - start).total_seconds() for at in bindings.running)
    initialized = [h.at for h in world.timeline.of("claim initialized") if h.name in first]
    return Placement(
        planned=sum(planned[name] for name in first),
        bought=sum(prices.get(name, 0.0) for name in first),
        realised=sum(prices.values()),
        nodes=len(prices),
        seconds=tuple(seconds[max(0, round(q * len(seconds)) - 1)] for q in _QUANTILES),
        slowest_node=(max(initialized) - start).total_seconds(),
        rounds=sum(line.get("message") == "Provisioned" and line["claims_created"] > 0 for line in logs),
        violations=bindings.violations,
    )


def _provisioner_logs(world: World) -> list[dict[str, Any]]:
    return [line for i in world.aws.functions.invocations if "provisioner" in i.function for line in i.logs]


def _prices(world: World) -> dict[str, float]:
    """USD per hour of each NodeClaim's instance."""
    catalog = catalog_cache.load(region=world.region, seed=world.seed, now=world.clock.now())
    if catalog is None:
        raise RuntimeError("the local world has no catalog")
    return {c["metadata"]["name"]: catalog.price(c["metadata"]["labels"]) or 0.0 for c in world.claims()}


def _load(name: str) -> list[dict[str, Any]]:
    return [doc for doc in yaml.safe_load_all((_WORKLOADS / name).read_text()) if doc]


def _row(name: str, option: str, placed: Placement) -> dict[str, str]:
    seconds = " / ".join(f"{s:.0f}" for s in placed.seconds)
    return {
        "measurement": f"{name}, pods {option}" if option == "nominated" else f"{name}, plannedPods=off",
        "target": "realised at most 1.03 of bought (c: 1.05), one round (c: two), no rule broken"
        if option != "off"
        else "",
        "result": (
            f"{placed.planned:.2f} planned, {placed.bought:.2f} bought, {placed.realised:.2f} realised $/h "
            f"({placed.realised / placed.bought:.3f}), {placed.nodes} nodes; {seconds} s (slowest node "
            f"{placed.slowest_node:.0f} s); {placed.rounds} round{'s' if placed.rounds != 1 else ''}, "
            f"{placed.violations} rules broken"
        ),
        "method": "local world, nodes Ready 30 to 40 s after launch; seconds until 50 / 99 / 100 % of pods run",
    }
