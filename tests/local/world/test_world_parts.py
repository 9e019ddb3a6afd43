from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from local.aws.capacity_pools import CapacityPools
from local.clock import Clock
from local.faults import Crash, Fault, Faults, InjectionPoint
from local.kubernetes import kinds
from local.kubernetes.registry.store import Store
from local.world.apply import apply_object
from local.world.authentication import access_key_of
from local.world.event_loop import EventLoop
from local.world.quiescence import MIN_QUIET_TIME, ActivityMonitor, required_quiet_time, unfinished
from local.world.timeline import Timeline

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
POD = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def token(url: str) -> str:
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def test_only_a_presigned_identity_call_that_names_its_cluster_is_a_token() -> None:
    signed = "X-Amz-Credential=KEY/20261121/us-east-1/sts/aws4_request&X-Amz-SignedHeaders=host%3Bx-k8s-aws-id"
    good = f"https://sts.us-east-1.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15&{signed}"
    assert access_key_of(token(good)) == "KEY"
    assert not access_key_of(token(good.replace("%3Bx-k8s-aws-id", "")))
    assert not access_key_of(token(good.replace("GetCallerIdentity", "AssumeRole")))
    assert not access_key_of(token(good.replace("sts.us-east-1.amazonaws.com", "example.com")))
    assert not access_key_of(good)


def test_the_clock_counts_what_work_takes_and_what_is_skipped() -> None:
    worked = [7.0]
    clock = Clock(NOW, elapsed=lambda: worked[0])
    worked[0] += 2
    assert clock.now() == NOW + timedelta(seconds=2)
    assert clock.skip_to(NOW + timedelta(seconds=5)) == timedelta(seconds=3)
    clock.sleep(1)
    assert clock.skip_to(NOW) == timedelta()
    assert clock.now() == NOW + timedelta(seconds=6)


def test_an_empty_cluster_is_idle_after_two_and_a_half_minutes() -> None:
    assert required_quiet_time(Store(now=lambda: NOW)) == MIN_QUIET_TIME == timedelta(seconds=150)


def test_a_pending_pod_is_unfinished_until_an_event_explains_it() -> None:
    store = Store(now=lambda: NOW)
    pod = store.create(kinds.PODS, POD)
    assert unfinished(store).pending == ("Pod default/web",)
    store.create(
        kinds.EVENTS,
        {
            "metadata": {"name": "web.1", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "name": "web", "uid": pod["metadata"]["uid"]},
            "source": {"component": "tenon"},
        },
    )
    assert not unfinished(store)


def test_leases_and_heartbeats_are_not_activity_and_a_new_pod_is() -> None:
    clock = [NOW]
    store = Store(now=lambda: clock[0])
    activity = ActivityMonitor(now=lambda: clock[0])
    store.subscribe(activity.change)
    clock[0] += timedelta(minutes=1)
    store.create(kinds.LEASES, {"metadata": {"name": "l", "namespace": "kube-system"}, "spec": {}})
    assert activity.last == NOW
    store.create(kinds.PODS, POD)
    assert activity.last == clock[0]


def test_the_timeline_has_the_events_of_a_pod() -> None:
    store = Store(now=lambda: NOW)
    timeline = Timeline(now=lambda: NOW)
    store.subscribe(timeline.change)
    store.create(kinds.PODS, POD)
    store.bind("default", "web", "n1")
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    store.patch(kinds.PODS, "web", ready, namespace="default", subresource="status")
    store.delete(kinds.PODS, "web", namespace="default")
    store.delete(kinds.PODS, "web", namespace="default", grace_period_seconds=0)
    assert [happening.type for happening in timeline.all] == [
        "pod created",
        "pod bound",
        "pod running",
        "pod terminating",
        "pod deleted",
    ]


def test_a_fault_occurs_where_it_matches_and_as_often_as_injected() -> None:
    faults = Faults()
    faults.inject_aws("ec2", "CreateFleet", Fault(code="Boom"), times=2, caller="provisioner")
    assert faults.next_fault(InjectionPoint(service="ec2", operation="CreateFleet", caller="disruption")) is None
    struck = [
        faults.next_fault(InjectionPoint(service="ec2", operation="CreateFleet", caller="provisioner"))
        for _ in range(3)
    ]
    assert [action is not None for action in struck] == [True, True, False]


def test_no_exception_handler_sees_a_crash_at_a_line() -> None:
    faults = Faults()
    faults.crash_after_lines("probe", 2, path="test_world_parts")
    reached: list[int] = []

    def work() -> None:
        try:
            reached.append(1)
            reached.append(2)
            reached.append(3)
        except Exception:  # noqa: BLE001 - what is proved: not even this one sees it
            reached.append(99)

    crash = faults.line_crash("probe")
    assert crash is not None
    with pytest.raises(Crash), crash:
        work()
    assert reached == [1]


def test_the_most_specific_capacity_setting_applies() -> None:
    capacity = CapacityPools()
    pool = ("spot", "m5.large", "us-east-1a")
    assert capacity.take(pool, 5) == 5
    capacity.set("spot", "*", "us-east-1a", 0)
    assert capacity.take(pool, 5) == 0
    capacity.set(*pool, 3)
    assert capacity.take(pool, 5) == 3
    capacity.set(*pool, None)
    assert capacity.remaining(pool) == 0


class Alarm:
    """An actor that has nothing to do before its time."""

    def __init__(self, time: datetime) -> None:
        self._time = time

    def step(self, now: datetime) -> bool:  # noqa: ARG002 (an actor's signature)
        return False

    def due(self) -> datetime:
        return self._time


def test_a_run_ends_on_time_although_the_next_thing_to_do_is_later() -> None:
    clock = Clock(NOW, elapsed=lambda: 0.0)
    alarm = Alarm(NOW + timedelta(hours=12))
    loop = EventLoop(clock, [alarm], is_busy=lambda: False, after_step=lambda: None, unfinished=lambda: "")
    loop.run_for(timedelta(hours=1))
    assert clock.now() == NOW + timedelta(hours=1)


def test_time_passes_while_something_that_is_due_is_held_back() -> None:
    """Work takes no time here, so a wait in real time for what never comes would be one for good."""
    clock = Clock(NOW, elapsed=lambda: 0.0)
    throttled, alarm = Alarm(NOW - timedelta(minutes=1)), Alarm(NOW + timedelta(minutes=10))
    seen = []
    loop = EventLoop(
        clock,
        [throttled, alarm],
        is_busy=lambda: False,
        after_step=lambda: seen.append(clock.now()),
        unfinished=lambda: "",
    )
    loop.run_for(timedelta(hours=1))
    assert clock.now() == NOW + timedelta(hours=1)
    assert NOW + timedelta(minutes=10) in seen


def test_a_manifest_that_is_applied_again_changes_labels_and_keeps_the_clusters_own_metadata() -> None:
    store = Store(now=lambda: NOW)
    before = apply_object(store, manifest(team="red"))
    after = apply_object(store, manifest(team="blue"))
    assert after["metadata"]["labels"] == {"team": "blue"}
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


def manifest(team: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": "default", "labels": {"team": team}},
    }
