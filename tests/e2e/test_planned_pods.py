"""Pods run on the nodes that were launched for them, and what is needed for that is gone soon, whatever happens."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds
from local.world import Options, World, catalog_cache, hostility
from local.world.sample_objects import deployment
from shared.api import labels as names
from tests.e2e.hostile_bounds import lease_delay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local.kubernetes.objects import Change, Obj

LIMIT = timedelta(minutes=10)
LONGEST = timedelta(seconds=30)
"""How long a taint or nomination may be there without a purpose."""
SIZES = [(f"{150 + 170 * i}m", f"{256 * (1 + i % 5)}Mi") for i in range(10)]


class Leftovers:
    """For how long nodes that are ready were closed, and pods were nominated for nodes that take pods, at most."""

    def __init__(self, world: World) -> None:
        self._now = world.clock.now
        self._since: dict[tuple[str, str], datetime] = {}
        self.longest = timedelta(0)
        self.nominated: set[str] = set()
        world.store.subscribe(self._change)

    def _change(self, change: Change) -> None:
        obj, exists = change.object, change.type != "DELETED"
        if change.kind.kind == "Node":
            keys = [taint["key"] for taint in obj["spec"].get("taints") or []]
            lasts = exists and keys == [names.PODS_NOT_NOMINATED_TAINT] and is_ready(obj)
            self._record("closed", obj["metadata"]["name"], lasts=lasts)
        elif change.kind.kind == "Pod":
            key, node = obj["metadata"]["name"], obj["status"].get("nominatedNodeName", "")
            if node:
                self.nominated.add(key)
            self._record("nominated", key, lasts=exists and bool(node) and not obj["spec"].get("nodeName"))

    def _record(self, state: str, name: str, *, lasts: bool) -> None:
        if lasts:
            self._since.setdefault((state, name), self._now())
        else:
            since = self._since.pop((state, name), None)
            self.longest = max(self.longest, self._now() - since if since is not None else timedelta(0))

    def total(self) -> timedelta:
        """The longest of all, including those that still last."""
        return max([self.longest, *(self._now() - since for since in self._since.values())])


def is_ready(node: Obj) -> bool:
    conditions = node["status"].get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def mix(replicas: int, *, prefix: str = "mix") -> list[Obj]:
    """Deployments of ten sizes."""
    return [
        deployment(f"{prefix}-{i}", replicas, {"cpu": cpu, "memory": memory}) for i, (cpu, memory) in enumerate(SIZES)
    ]


def planned_node(world: World) -> dict[str, str]:
    """The node that is planned for each pod."""
    return {
        key.partition("/")[2]: claim["status"].get("nodeName", "")
        for claim in world.claims()
        for key in claim["metadata"]["annotations"].get(names.PLANNED_PODS, "").split(",")
    }


def price(world: World) -> float:
    """USD per hour of all nodes."""
    catalog = catalog_cache.load(region=world.region, seed=world.seed, now=world.clock.now())
    assert catalog is not None
    prices = [catalog.price(node["metadata"]["labels"]) for node in world.nodes()]
    assert None not in prices
    return sum(amount or 0.0 for amount in prices)


def run_all(world: World, count: int) -> None:
    world.run_until(lambda: len(world.pods(phase="Running")) == count, limit=LIMIT)


@pytest.mark.flow
def test_pods_run_where_they_were_planned_and_nothing_is_launched_later(spot_default: World) -> None:
    world, leftovers = spot_default, Leftovers(spot_default)
    world.apply(mix(30))
    run_all(world, 300)
    planned = planned_node(world)
    where = Counter(planned.get(p["metadata"]["name"]) == p["spec"]["nodeName"] for p in world.pods())
    # Functions that run at once open some nodes before the pods of others are nominated.
    share, later = (0.9, 0) if hostility.of_environment() is None else (0.7, 2)
    assert where[True] >= share * 300
    up = min(h.at for h in world.timeline.of("claim initialized"))
    assert sum(h.at >= up for h in world.timeline.of("claim created")) <= later
    assert len(leftovers.nominated) >= share * 300
    world.run_for(LONGEST)
    assert leftovers.total() <= LONGEST
    assert world.failures() == []


@pytest.mark.parametrize("replicas", [8, 20])
def test_every_node_that_is_bought_for_pods_that_prefer_to_be_apart_runs_some_of_them(
    replicas: int, spot_default: World
) -> None:
    world = spot_default
    selector = {"matchLabels": {"app": "shop"}}
    rules = [
        {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}
        for key in (names.HOSTNAME, names.ZONE)
    ]
    world.apply(deployment("shop", replicas, {"cpu": "300m", "memory": "400Mi"}, topologySpreadConstraints=rules))
    run_all(world, replicas)
    bought, paid = len(world.instances()), price(world)
    assert 2 <= bought < replicas / 2
    assert {p["spec"]["nodeName"] for p in world.pods()} == {n["metadata"]["name"] for n in world.nodes()}
    world.run_for(timedelta(minutes=20))
    assert (len(world.instances()), price(world)) == (bought, paid)


@pytest.fixture
def without_nominations(load: Callable[[str], list[dict[str, Any]]]) -> Iterator[World]:
    with World(options=Options(context={"plannedPods": "off"})) as world:
        world.apply(load("spot-default.yaml"))
        yield world


def test_by_option_no_node_is_closed_and_no_pod_nominated(without_nominations: World) -> None:
    world, leftovers = without_nominations, Leftovers(without_nominations)
    world.apply(mix(2))
    run_all(world, 20)
    assert leftovers.nominated == set()
    assert leftovers.total() == timedelta(0)
    assert all(not claim["spec"].get("startupTaints") for claim in world.claims())


@pytest.mark.parametrize("version", ["1.36", "1.37"])
def test_a_pod_that_only_others_anti_affinity_keeps_away_runs_soon_after_its_node_is_up(
    version: str, load: Callable[[str], list[dict[str, Any]]]
) -> None:
    """From 1.37 on, kube-scheduler tries such a pod for no new node; it would wait for five minutes."""
    term = {"topologyKey": names.HOSTNAME, "labelSelector": {"matchLabels": {"app": "db"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    requests = {"cpu": "100m", "memory": "128Mi"}
    with World(options=Options(version=version)) as world:
        world.apply(load("spot-default.yaml"))
        world.apply(deployment("lonely", 1, requests, affinity=apart))
        run_all(world, 1)
        world.apply(deployment("db", 1, requests))
        world.run_until(lambda: len(world.nodes()) == 2, limit=LIMIT)
        initialized = world.clock.now()
        run_all(world, 2)
        assert world.clock.now() - initialized < timedelta(seconds=75)
        assert len(world.instances()) == 2
        assert world.failures() == []


def test_a_replacement_for_running_pods_takes_pods_at_once(spot_default: World) -> None:
    world = spot_default
    world.scale("default", "inflate", 3)
    world.run_until_idle()
    world.interrupt_spot([world.instances()[0].id])
    world.run_until_idle()
    assert len(world.pods(phase="Running")) == 3
    assert all(not node["spec"].get("taints") for node in world.nodes())


@pytest.mark.long
@pytest.mark.parametrize("batches", [5])
def test_pods_that_come_in_batches_fill_the_nodes_on_their_way_before_others_are_launched(
    batches: int, load: Callable[[str], list[dict[str, Any]]]
) -> None:
    prices = {}
    for parts in (1, batches):
        with World() as world:
            world.apply(load("spot-default.yaml"))
            kept: dict[str, str] = {}
            for part in range(parts):
                world.apply(mix(batches * 4 // parts, prefix=f"batch-{part}"))
                world.run_for(timedelta(seconds=4))
                now_planned = {
                    key: claim["metadata"]["name"]
                    for claim in world.claims()
                    for key in claim["metadata"]["annotations"][names.PLANNED_PODS].split(",")
                }
                assert kept.items() <= now_planned.items()
                kept = now_planned
            run_all(world, 10 * batches * 4)
            prices[parts] = price(world)
    assert prices[batches] <= 1.05 * prices[1]


def test_a_crash_between_any_two_steps_leaves_no_taint_and_no_nomination(spot_default: World) -> None:
    """One of the pods has a scheduler that never comes, so its nomination has to be cleared by Tenon."""
    world, leftovers = spot_default, Leftovers(spot_default)
    crashes = world.faults.crash_around_each_write("lifecycle")
    required = {
        ("kubernetes PATCH pods/NAME/status", "before"),
        ("kubernetes PATCH pods/NAME/status", "after"),
        ("kubernetes PATCH nodes/NAME", "before"),
        ("kubernetes PATCH nodes/NAME", "after"),
        ("kubernetes PATCH nodeclaims/NAME/status", "before"),
        ("kubernetes PATCH nodeclaims/NAME/status", "after"),
    }
    for i in itertools.count():
        world.scale("default", "inflate", 3)
        world.apply(unscheduled_pod(f"stuck-{i}"))
        mark_unschedulable(world, f"stuck-{i}")
        world.run_until(lambda: len(world.pods(phase="Running")) == 3, limit=LIMIT)
        world.run_until(lambda i=i: f"stuck-{i}" in leftovers.nominated, limit=LIMIT)  # type: ignore[misc]
        world.run_for(2 * LONGEST)
        assert leftovers.total() <= LONGEST + lease_delay()
        world.store.delete(kinds.PODS, f"stuck-{i}", namespace="default")
        world.scale("default", "inflate", 0)
        world.run_until_idle(limit=timedelta(hours=1))
        if required <= crashes.tried and not crashes.remaining:
            break
        assert i < 8
    assert required <= crashes.tried


def unscheduled_pod(name: str) -> Obj:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1500m", "memory": "128Mi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": "none", "terminationGracePeriodSeconds": 0, "containers": [container]},
    }


def mark_unschedulable(world: World, name: str) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"status": {"conditions": [condition]}}
    world.store.patch(kinds.PODS, name, status, namespace="default", subresource="status")
