"""CapacityBuffers with a schedule: their room is ready when a window begins, and gone after it."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from local.world import Options, World, sample_objects
from shared.api import labels as names
from shared.api.capacity_buffer import PROVISIONING, READY_FOR_PROVISIONING
from tests.e2e.world_state import capacity_buffer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REQUESTS = {"cpu": "900m", "memory": "900Mi"}
MINUTE = timedelta(minutes=1)
CONSOLIDATE_AFTER = timedelta(seconds=30)
CLOCKS_BACK = date(2026, 11, 1)
"""New York's clocks go back an hour; Seoul's never do."""

Json = dict[str, Any]


def buffer(name: str, replicas: int, annotations: dict[str, str]) -> Json:
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}, "replicas": replicas},
    }


def world_at(start: datetime) -> World:
    return World(options=Options(start=start.astimezone(UTC)))


@pytest.fixture
def world() -> Iterator[World]:
    with world_at(datetime(2026, 11, 23, 8, 30, tzinfo=UTC)) as world:
        yield world


def apply(world: World, *buffers: Json) -> None:
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s"}
    pool = sample_objects.node_pool({"karpenter.sh/capacity-type": ["on-demand"]}, disruption=disruption)
    web = sample_objects.deployment("web", 0, REQUESTS)
    world.apply([sample_objects.node_class(world), pool, web, *buffers])


def run_to(world: World, moment: datetime) -> None:
    world.run_for(moment - world.clock.now())


def reason(world: World, name: str, type_: str = PROVISIONING) -> str:
    conditions = {c["type"]: c["reason"] for c in capacity_buffer(world, name)["status"]["conditions"]}
    return str(conditions[type_])


@pytest.mark.parametrize(
    ("first", "days"),
    [
        (CLOCKS_BACK, 1),
        pytest.param(CLOCKS_BACK - timedelta(days=7), 14, marks=pytest.mark.long),
    ],
    ids=["the day of the change", "a fortnight"],
)
def test_rooms_of_two_zones_are_ready_at_nine_and_gone_after_six_by_their_own_clocks(first: date, days: int) -> None:
    zones = {"seoul": ZoneInfo("Asia/Seoul"), "new-york": ZoneInfo("America/New_York")}
    with world_at(datetime.combine(first, time(8, 30), zones["seoul"])) as world:
        apply(
            world,
            *(
                buffer(name, 3, {names.SCHEDULE: f"0 9 * * * until 0 18 * * * in {zone.key}"})
                for name, zone in zones.items()
            ),
        )
        for day in (first + timedelta(days=n) for n in range(days)):
            for name, zone in zones.items():
                nine = datetime.combine(day, time(9), zone).astimezone(UTC)
                six = datetime.combine(day, time(18), zone).astimezone(UTC)
                world.clock.skip_to(nine - 8 * MINUTE)
                run_to(world, nine - 5 * MINUTE)
                assert world.nodes() == []
                run_to(world, nine)
                assert reason(world, name) == "FitsExistingCapacity", (day, name)
                world.clock.skip_to(six - MINUTE)
                run_to(world, six)
                assert reason(world, name) == "FitsExistingCapacity", (day, name)
                run_to(world, six + CONSOLIDATE_AFTER + 2 * MINUTE)
                assert [i for i in world.instances() if i.state == "running"] == [], (day, name)
                assert reason(world, name) == "BufferEmpty"
        assert not world.failures()


def test_pods_of_the_rush_run_at_once_and_their_nodes_stay_after_the_window(
    load: Callable[[str], list[Json]],
) -> None:
    monday, zone = date(2026, 11, 23), ZoneInfo("Asia/Seoul")
    with world_at(datetime.combine(monday, time(8, 45), zone)) as world:
        apply(world, *load("capacity-buffer-schedule.yaml"))
        run_to(world, datetime.combine(monday, time(9), zone))
        ready = {n["metadata"]["name"] for n in world.nodes()}
        world.scale("default", "rush", 8)
        world.run_until(lambda: len(world.pods(phase="Running")) == 8, limit=MINUTE / 6)
        assert {p["spec"]["nodeName"] for p in world.pods()} <= ready
        world.clock.skip_to(datetime.combine(monday, time(17, 58), zone))
        run_to(world, datetime.combine(monday, time(18, 5), zone))
        assert len(world.pods(phase="Running")) == 8
        assert capacity_buffer(world, "rush")["status"]["replicas"] == 0


@pytest.mark.long
def test_the_lead_time_is_learned_from_the_pools_own_launches_and_outlives_them(world: World) -> None:
    apply(world, buffer("web", 2, {names.SCHEDULE: "0 9 * * * for 30m"}))
    nine = datetime(2026, 11, 23, 9, tzinfo=UTC)
    world.clock.skip_to(nine - 5 * MINUTE)
    run_to(world, nine + MINUTE)
    pools = world.store.kind("karpenter.sh/v1", "NodePool")
    learned = world.store.get(pools, "default")["metadata"]["annotations"][names.LAUNCH_SECONDS]
    created = min(event.at for event in world.timeline.of("claim created"))
    initialized = min(event.at for event in world.timeline.of("claim initialized"))
    took = (initialized - created).total_seconds()
    assert took - 1 <= int(learned) <= took + 11
    world.clock.skip_to(nine + 29 * MINUTE)
    run_to(world, nine + 34 * MINUTE)
    assert world.claims() == []
    world.clock.skip_to(nine + timedelta(days=1) - 6 * MINUTE)
    run_to(world, nine + timedelta(days=1))
    second = max(e.at for e in world.timeline.of("claim created"))
    expected = timedelta(seconds=int(learned) + 90)
    assert expected - timedelta(seconds=65) <= nine + timedelta(days=1) - second <= expected
    assert reason(world, "web") == "FitsExistingCapacity"


def test_the_lead_time_that_the_user_gives_counts(world: World) -> None:
    apply(world, buffer("web", 2, {names.SCHEDULE: "0 9 * * * for 30m", names.LEAD_TIME: "20m"}))
    run_to(world, datetime(2026, 11, 23, 8, 39, tzinfo=UTC))
    assert world.claims() == []
    run_to(world, datetime(2026, 11, 23, 8, 42, tzinfo=UTC))
    assert world.claims()


def test_two_windows_and_chunks_for_the_time_between(world: World) -> None:
    windows = "0 9 * * * for 3m\n0 9 * * * for 6m keep 4"
    apply(world, buffer("web", 8, {names.SCHEDULE: windows, names.MIN_CHUNKS: "1"}))
    seen = {}
    world.clock.skip_to(datetime(2026, 11, 23, 8, 50, tzinfo=UTC))
    for minute in (-6, 2, 5, 8):
        run_to(world, datetime(2026, 11, 23, 9, tzinfo=UTC) + minute * MINUTE)
        seen[minute] = capacity_buffer(world, "web")["status"]["replicas"]
    assert seen == {-6: 1, 2: 8, 5: 4, 8: 1}


def test_an_annotation_that_cannot_be_read_is_named_and_buys_nothing(world: World) -> None:
    apply(world, buffer("web", 3, {names.SCHEDULE: "every morning"}), buffer("whole", 1, {}))
    world.run_for(3 * MINUTE)
    assert reason(world, "web", READY_FOR_PROVISIONING) == "ResolutionFailed"
    (message,) = (
        c["message"] for c in capacity_buffer(world, "web")["status"]["conditions"] if c["reason"] == "ResolutionFailed"
    )
    assert message.startswith('metadata.annotations[tenon.sh/schedule]: "every morning" is no window; allowed is')
    assert reason(world, "whole") == "FitsExistingCapacity"


@pytest.mark.flow
def test_a_changed_annotation_is_followed_within_seconds(world: World) -> None:
    apply(world, buffer("web", 3, {names.SCHEDULE: "0 9 * * * for 1h"}))
    world.run_for(2 * MINUTE + timedelta(seconds=5))
    assert world.claims() == []
    world.apply(buffer("web", 3, {names.SCHEDULE: "0 8 * * * for 1h"}))
    world.run_until(lambda: bool(world.claims()), limit=timedelta(seconds=10))
