"""Lambda, EventBridge, SQS or the relay act twice, late, not at all, or all at once. Nothing is lost or doubled."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.aws import backends
from local.faults import Fault
from local.world import Options, World
from tests.e2e.aws_failures.conditions import (
    MINUTE,
    assert_nothing_lost_or_doubled,
    launched,
    small_cluster,
)
from tests.e2e.interruptions.environment import REBALANCE, RESERVED, SPOT, STATE, event, health, send

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR = timedelta(hours=1)


@contextmanager
def every_invocation_twice(world: World) -> Iterator[None]:
    """While entered, each event and each batch is handled by two invocations: a delivery twice, or a second stack."""
    functions = world.aws.functions
    start = functions.start

    def twice(function: str, given: Any, *, done: Any, **more: Any) -> None:
        start(function, given, done=done, **more)
        if functions.named(function).short_name != "relay":
            start(function, given, done=lambda _record: None, **more)

    with backends.replaced(functions, "start", twice):
        yield


@contextmanager
def no_invocation(world: World, *short_names: str) -> Iterator[None]:
    """While entered, Lambda throttles each invocation of these functions; EventBridge's wait, as on AWS."""
    functions = world.aws.functions
    may_start, due_items = functions.may_start, functions._due

    def is_throttled(function: str, _running: int = 0) -> bool:
        return functions.named(function).short_name in short_names

    with ExitStack() as stack:
        stack.enter_context(
            backends.replaced(functions, "may_start", lambda f: not is_throttled(f) and bool(may_start(f)))
        )
        stack.enter_context(
            backends.replaced(
                functions, "_due", lambda now: [i for i in due_items(now) if not is_throttled(i.function)]
            )
        )
        stack.enter_context(backends.replaced(functions, "_is_held_back", is_throttled))
        yield


@contextmanager
def events_held_back(world: World) -> Iterator[None]:
    """While entered, EventBridge delivers nothing; at the end all of it at once."""
    buses = world.aws.event_buses
    held: list[Any] = []
    with backends.replaced(buses, "_to_target", held.append):
        yield
    for delivery in held:
        buses.redeliver(delivery)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_two_deployments_on_one_cluster_buy_and_remove_everything_once(concurrency: int) -> None:
    with World(cluster="demo", options=Options(concurrency=concurrency)) as world:
        with every_invocation_twice(world):
            small_cluster(world, 6)
            assert launched(world) == 3
            world.interrupt_spot([world.instances()[0].id])
            world.scale("default", "web", 8)
            world.run_for(8 * MINUTE)
            assert launched(world) == 5
        world.run_for(2 * MINUTE)
        assert_nothing_lost_or_doubled(world, pods=8)


@pytest.mark.parametrize(
    "throttled",
    [["provisioner"], ["lifecycle"], ["termination"], ["provisioner", "lifecycle", "termination"]],
    ids=",".join,
)
def test_a_function_without_concurrency_for_twenty_minutes_loses_nothing(world: World, throttled: list[str]) -> None:
    small_cluster(world, 4)
    with no_invocation(world, *throttled):
        world.scale("default", "web", 6)
        world.run_for(10 * MINUTE)
        world.scale("default", "web", 8)
        world.run_for(10 * MINUTE)
        assert launched(world) <= 5
    world.run_for(12 * MINUTE)
    assert_nothing_lost_or_doubled(world, pods=8)


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/nodeclaims"), ("PATCH", "/nodes/"), ("POST", "/eviction"), ("DELETE", "/nodeclaims/")],
)
def test_a_function_that_is_frozen_between_two_lines_is_replaced_and_does_no_harm(
    world: World, method: str, path: str
) -> None:
    small_cluster(world, 4)
    world.faults.inject_kubernetes(method, path, Fault(delay=900), times=1)
    world.interrupt_spot([world.instances()[0].id])
    world.scale("default", "web", 6)
    world.run_for(30 * MINUTE)
    assert len(world.faults.occurred) == 1
    assert_nothing_lost_or_doubled(world, pods=6)


def test_after_an_hour_without_events_all_of_them_at_once_change_nothing_more(world: World) -> None:
    small_cluster(world, 4)
    with events_held_back(world):
        world.scale("default", "web", 6)
        world.interrupt_spot([world.instances()[0].id])
        world.run_for(HOUR)
    world.run_for(10 * MINUTE)
    assert_nothing_lost_or_doubled(world, pods=6)
    assert launched(world) <= 5


def test_an_hour_without_the_relay_costs_at_most_a_minute_each_time(world: World) -> None:
    small_cluster(world, 4)
    relay = world.relay
    assert relay is not None
    with ExitStack() as stack:
        for name, value in (("step", lambda _now: False), ("due", lambda: None), ("has_observed", lambda _of: True)):
            stack.enter_context(backends.replaced(relay, name, value))
        world.scale("default", "web", 8)
        world.run_until(lambda: len(world.pods(phase="Running")) == 8, limit=5 * MINUTE)
        world.scale("default", "web", 4)
        world.run_for(20 * MINUTE)
        interrupted = world.instances()[0].id
        warned = world.clock.now()
        world.interrupt_spot([interrupted])
        world.run_until(lambda: interrupted not in {i.id for i in world.instances()}, limit=3 * MINUTE)
        ended = [h.at for h in world.timeline.of("pod terminating") if h.at >= warned]
        assert not ended or max(ended) < warned + timedelta(seconds=110)
        world.run_for(35 * MINUTE)
        assert_nothing_lost_or_doubled(world, pods=4)
    world.run_for(5 * MINUTE)
    assert_nothing_lost_or_doubled(world, pods=4)
    assert world.dead_letters() == []


def test_queues_that_are_redriven_after_a_day_drain_nothing(world: World) -> None:
    small_cluster(world, 6)
    gone, *living = [i.id for i in world.instances()]
    world.interrupt_spot([gone])
    world.run_for(10 * MINUTE)
    pods = {p["metadata"]["uid"] for p in world.pods(phase="Running")}
    nodes = {n["metadata"]["name"] for n in world.nodes()}
    assert len(nodes) == 3
    day = timedelta(days=1).total_seconds()
    for instance in (gone, *living, "i-0123456789abcdef0"):
        details = {"instance-id": instance, "state": "terminated", "instance-action": "terminate"}
        send(world, *[event(world, kind, details, ago=day) for kind in (SPOT, REBALANCE, RESERVED, STATE)])
    announced = json.loads(health(world, gone, *living, start=world.clock.now() - timedelta(hours=20)))
    announced["time"] = (world.clock.now() - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    send(world, json.dumps(announced))
    world.redeliver()
    world.run_for(20 * MINUTE)
    assert {n["metadata"]["name"] for n in world.nodes()} == nodes
    assert {p["metadata"]["uid"] for p in world.pods(phase="Running")} == pods
    assert_nothing_lost_or_doubled(world, pods=6)
