"""Scale-in: the nodes that the load leaves behind go within minutes, under budgets, and don't come and go with it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds
from local.world import Options, World, hostility, sample_objects
from shared.cluster.lease import NAMESPACE
from shared.cluster.lease_record import ANNOTATION
from shared.disruption import load_history
from tests.e2e.hostile_bounds import shutdown_delay
from tests.e2e.world_state import running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.aws.invocation import Invocation

RECORD = "tenon-demo-load-history"
DEPLOYMENTS, REPLICAS = 6, 20
MINUTE = timedelta(minutes=1)


@pytest.fixture
def world() -> Iterator[World]:
    with World(options=Options()) as world:
        yield world


def start(world: World, *, budget: str = "10%", consolidate_after: str = "30s") -> None:
    """120 pods on nodes of two to four vCPUs, and ten minutes."""
    pool = sample_objects.node_pool(
        {"karpenter.sh/capacity-type": ["on-demand"], "karpenter.k8s.aws/instance-cpu": ["2", "4"]},
        disruption={
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": consolidate_after,
            "budgets": [{"nodes": budget}],
        },
    )
    deployments = [
        sample_objects.deployment(f"web-{i}", REPLICAS, {"cpu": f"{200 + 50 * i}m", "memory": "500Mi"})
        for i in range(DEPLOYMENTS)
    ]
    world.apply([sample_objects.node_class(world), pool, *deployments])
    world.run_until(lambda: len(running(world)) == DEPLOYMENTS * REPLICAS)
    world.run_for(10 * MINUTE)


def scale(world: World, replicas: int) -> None:
    for i in range(DEPLOYMENTS):
        world.scale("default", f"web-{i}", replicas)


def created_pods(world: World, since: int) -> int:
    return sum(e.type == "pod created" for e in world.timeline.all[since:])


def disruption_logs(world: World) -> list[dict[str, Any]]:
    def lines(invocation: Invocation) -> Iterator[dict[str, Any]]:
        for line in invocation.output.splitlines():
            if line.startswith("{"):
                yield json.loads(line)

    return [line for i in world.aws.functions.invocations if i.function == "disruption" for line in lines(i)]


def test_the_nodes_that_a_scale_in_leaves_behind_go_within_minutes_and_within_the_budget(world: World) -> None:
    start(world)
    before = len(world.nodes())
    most_at_once = 0

    def observe() -> bool:
        nonlocal most_at_once
        deleting = sum(bool(c["metadata"].get("deletionTimestamp")) for c in world.claims())
        most_at_once = max(most_at_once, deleting)
        return len(world.nodes()) <= before * 0.45

    since = len(world.timeline.all)
    scale(world, 6)
    world.run_until(observe, limit=6 * MINUTE if hostility.of_environment() is None else 15 * MINUTE)
    assert most_at_once <= -(-before // 10)
    assert created_pods(world, since) <= DEPLOYMENTS * 6
    reasons = [line["why"] for line in disruption_logs(world) if line.get("message") == "Disrupting nodes"]
    assert any("scaled in from 20 to 6 at" in why and "expected to last 6.0 h" in why for why in reasons)


@pytest.mark.long
def test_a_load_that_comes_back_after_minutes_teaches_that_it_does(world: World) -> None:
    start(world)
    # The budget lets three nodes go at once, empty ones first: pods are moved about four shutdowns after the scale-in.
    low = 5 * MINUTE + 4 * shutdown_delay()
    moved: list[int] = []
    for _ in range(3):
        since = len(world.timeline.all)
        scale(world, 6)
        world.run_for(low)
        moved.append(created_pods(world, since))
        scale(world, REPLICAS)
        world.run_until(lambda: len(running(world)) == DEPLOYMENTS * REPLICAS)
        world.run_for(2 * MINUTE)
    assert moved[0] > 0
    assert moved[2] < moved[0] / 2
    lease = world.store.get(kinds.LEASES, RECORD, namespace=NAMESPACE)
    history = load_history.decode(lease["metadata"]["annotations"][ANNOTATION], now=world.clock.now())
    lasted = [s.ended - s.at for s in history.scale_ins if s.workload == "Deployment default/web-0" and s.ended]
    assert len(lasted) == 3
    assert all(low - MINUTE < time < low + 3 * MINUTE for time in lasted)


@pytest.mark.parametrize("text", ["{garbled", '{"version": 1, "scaleIns": [{"workload": "x"}]}'])
def test_a_garbled_load_history_is_ignored_named_in_the_log_and_written_again(world: World, text: str) -> None:
    start(world)
    world.store.patch(kinds.LEASES, RECORD, {"metadata": {"annotations": {ANNOTATION: text}}}, namespace=NAMESPACE)
    world.run_for(MINUTE)
    ignored = [
        line for line in disruption_logs(world) if line.get("message") == "Ignored a load history that can't be used"
    ]
    assert {line["record"] for line in ignored} == {f"Lease {NAMESPACE}/{RECORD}"}
    lease = world.store.get(kinds.LEASES, RECORD, namespace=NAMESPACE)
    history = load_history.decode(lease["metadata"]["annotations"][ANNOTATION], now=world.clock.now())
    assert history.workloads["Deployment default/web-0"].pods == REPLICAS
    assert world.failures() == []


@pytest.mark.flow
def test_four_empty_nodes_go_within_a_minute_under_a_budget_of_one(world: World) -> None:
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    spread["labelSelector"] = {"matchLabels": {"app": "web"}}
    pool = sample_objects.node_pool(
        {"karpenter.sh/capacity-type": ["on-demand"], "karpenter.k8s.aws/instance-cpu": ["2"]},
        disruption={"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s", "budgets": [{"nodes": "10%"}]},
    )
    web = sample_objects.deployment("web", 4, {"cpu": "1"}, topologySpreadConstraints=[spread])
    world.apply([sample_objects.node_class(world), pool, web])
    world.run_until(lambda: len(running(world)) == 4 and len(world.nodes()) == 4)
    world.run_for(3 * MINUTE)
    emptied = world.clock.now()
    world.scale("default", "web", 0)
    world.run_until(lambda: not world.nodes(), limit=10 * MINUTE)
    # They go one after the other, as the budget says.
    assert world.clock.now() - emptied <= MINUTE + 4 * shutdown_delay()
