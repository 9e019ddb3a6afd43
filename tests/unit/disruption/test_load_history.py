"""The load history: which workloads were scaled in, for how long, and when a NodePool's load rises again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from shared.api import labels as names
from shared.api.containers import Container, ResourceRequirements
from shared.api.kubernetes import Node, Pod, PodSpec, PodStatus
from shared.api.meta import ObjectMeta, OwnerReference
from shared.disruption import load_history
from shared.disruption.load_history import (
    BUCKET,
    MAX_BUCKETS,
    MAX_POOLS,
    MAX_SCALE_INS,
    MAX_WORKLOADS,
    InvalidHistoryError,
    LoadHistory,
)
from shared.disruption.savings_evidence import MIN_REMOVED_SHARE, SCALE_IN_DURATION, savings_evidence
from shared.disruption.workloads import Load, Workload, current_workloads, workload_of
from shared.snapshot import Snapshot

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def pod(
    name: str,
    owner: str = "web-5d9c7",
    *,
    kind: str = "ReplicaSet",
    template_hash: str = "5d9c7",
    cpu: str = "500m",
    node: str = "n1",
    phase: str = "Running",
    terminating: bool = False,
) -> Pod:
    reference = OwnerReference(api_version="apps/v1", kind=kind, name=owner, uid=owner, controller=True)
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            labels={"pod-template-hash": template_hash} if template_hash else {},
            owner_references=[reference],
            deletion_timestamp=NOW if terminating else None,
        ),
        spec=PodSpec(
            node_name=node,
            containers=[Container(resources=ResourceRequirements(requests={"cpu": cpu, "memory": "1Gi"}))],
        ),
        status=PodStatus(phase=phase),
    )


def pods(
    count: int,
    owner: str = "web-5d9c7",
    *,
    kind: str = "ReplicaSet",
    template_hash: str = "5d9c7",
    node: str = "n1",
    phase: str = "Running",
    terminating: bool = False,
) -> tuple[Pod, ...]:
    return tuple(
        pod(
            f"{owner}-{i}",
            owner,
            kind=kind,
            template_hash=template_hash,
            node=node,
            phase=phase,
            terminating=terminating,
        )
        for i in range(count)
    )


def snapshot(*pods: Pod) -> Snapshot:
    node = Node(metadata=ObjectMeta(name="n1", labels={names.NODEPOOL: "default"}))
    return Snapshot(taken_at=NOW, pods=pods, nodes=(node,))


def sweep(history: LoadHistory, *pods: Pod, at: datetime) -> LoadHistory:
    """The history after a sweep, stored and read again."""
    after = load_history.updated(history, current_workloads(snapshot(*pods)), now=at)
    return load_history.decode(load_history.encode(after), now=at)


def duration(history: LoadHistory, *pods: Pod, at: datetime) -> timedelta | None:
    """How long the savings in the NodePool are expected to last by scale-ins; None without evidence."""
    evidence = savings_evidence(history, current_workloads(snapshot(*pods)).workloads, now=at).get("default")
    return None if evidence is None or evidence.is_limit else evidence.duration


def test_a_deployment_that_was_scaled_in_is_evidence_that_says_what_happened() -> None:
    history = sweep(LoadHistory(), *pods(50), at=NOW)
    assert duration(history, *pods(50), at=NOW) is None
    history = sweep(history, *pods(15), *pods(35, terminating=True), at=NOW + 2 * MINUTE)
    evidence = savings_evidence(history, current_workloads(snapshot(*pods(15))).workloads, now=NOW + 2 * MINUTE)
    assert evidence["default"].why == "Deployment default/web scaled in from 50 to 15 at 12:02 UTC"
    assert evidence["default"].duration == SCALE_IN_DURATION


def test_a_scale_in_that_continues_is_one_and_it_ends_when_most_pods_are_back() -> None:
    history = sweep(LoadHistory(), *pods(50), at=NOW)
    history = sweep(history, *pods(30), at=NOW + MINUTE)
    history = sweep(history, *pods(15), at=NOW + 2 * MINUTE)
    (scale_in,) = history.scale_ins
    assert (scale_in.before, scale_in.after, scale_in.at) == (50, 15, NOW + MINUTE)
    history = sweep(history, *pods(20), at=NOW + 3 * MINUTE)
    assert history.scale_ins[0].ended is None
    history = sweep(history, *pods(48), at=NOW + 6 * MINUTE)
    assert history.scale_ins[0].ended == NOW + 6 * MINUTE
    assert duration(history, *pods(48), at=NOW + 6 * MINUTE) is None


def test_the_next_scale_in_is_expected_to_last_as_long_as_the_earlier_ones() -> None:
    history = sweep(LoadHistory(), *pods(50), at=NOW)
    at = NOW
    for lasts in (5, 7, 90):
        history = sweep(history, *pods(15), at=at + MINUTE)
        at += MINUTE + lasts * MINUTE
        history = sweep(history, *pods(50), at=at)
    history = sweep(history, *pods(15), at=at + MINUTE)
    assert duration(history, *pods(15), at=at + MINUTE) == 7 * MINUTE
    # One that lasts longer than those before is expected to last for as long again.
    assert duration(history, *pods(15), at=at + 31 * MINUTE) == 30 * MINUTE


@pytest.mark.parametrize(
    ("during", "after"),
    [
        # A rolling update has pods of two ReplicaSets, and more of them.
        ((*pods(50), *pods(12, "web-77777", template_hash="77777")), pods(50, "web-77777", template_hash="77777")),
        # Recreate: the old ones are terminating, and the new ones come when they are gone.
        (pods(50, terminating=True), pods(50, "web-77777", template_hash="77777")),
        # A drain moves pods: each has its successor at once.
        ((*pods(45), *pods(5, node=""), *pods(5, terminating=True)), pods(50)),
        # An autoscaler takes back less than a tenth.
        (pods(47), pods(50)),
    ],
)
def test_updates_drains_and_small_changes_are_no_scale_ins(during: tuple[Pod, ...], after: tuple[Pod, ...]) -> None:
    history = sweep(LoadHistory(), *pods(50), at=NOW)
    history = sweep(history, *during, at=NOW + MINUTE)
    history = sweep(history, *after, at=NOW + 2 * MINUTE)
    assert history.scale_ins == []


def test_an_update_makes_an_earlier_scale_in_no_deeper() -> None:
    history = sweep(sweep(LoadHistory(), *pods(50), at=NOW), *pods(15), at=NOW + MINUTE)
    history = sweep(history, *pods(15, terminating=True), at=NOW + 2 * MINUTE)
    (scale_in,) = history.scale_ins
    assert (scale_in.before, scale_in.after) == (50, 15)


def test_a_scale_in_that_removes_little_of_the_pools_load_is_no_evidence() -> None:
    batch = pods(100, "batch-abc", template_hash="abc")
    history = sweep(LoadHistory(), *pods(10), *batch, at=NOW)
    history = sweep(history, *pods(6), *batch, at=NOW + MINUTE)
    assert MIN_REMOVED_SHARE > 4 / 110
    assert len(history.scale_ins) == 1
    assert duration(history, *pods(6), *batch, at=NOW + MINUTE) is None


def test_a_later_scale_in_that_removes_little_is_no_evidence_for_nodes_launched_since_the_large_one() -> None:
    steady = pods(10, "batch-1")
    history = sweep(LoadHistory(), *pods(100), *steady, at=NOW)
    history = sweep(history, *pods(50), *steady, at=NOW + MINUTE)
    later = NOW + 2 * HOUR
    history = sweep(history, *pods(50), *pods(8, "batch-1"), at=later)
    workloads = current_workloads(snapshot(*pods(50), *pods(8, "batch-1"))).workloads
    assert [s.at for s in history.scale_ins] == [NOW + MINUTE, later]
    evidence = savings_evidence(history, workloads, now=later)["default"]
    assert evidence.applies_to(NOW)
    assert not evidence.applies_to(NOW + HOUR)


def test_a_job_that_ended_is_evidence_and_its_cron_jobs_next_run_is_the_return() -> None:
    def job(name: str, phase: str = "Running") -> tuple[Pod, ...]:
        return pods(8, name, kind="Job", template_hash="", phase=phase)

    stays = pods(2)
    history = sweep(LoadHistory(), *stays, *job("etl-29012345"), at=NOW)
    history = sweep(history, *stays, *job("etl-29012345", "Succeeded"), at=NOW + MINUTE)
    evidence = savings_evidence(history, current_workloads(snapshot(*stays)).workloads, now=NOW + MINUTE)
    assert evidence["default"].why == "CronJob default/etl ended at 12:01 UTC (8 pods)"
    history = sweep(history, *stays, *job("etl-29012405"), at=NOW + HOUR)
    history = sweep(history, *stays, at=NOW + HOUR + MINUTE)
    assert duration(history, *stays, at=NOW + HOUR + MINUTE) == 59 * MINUTE


def test_workloads_are_named_as_users_know_them() -> None:
    assert workload_of(pod("p")) == "Deployment default/web"
    assert workload_of(pod("p", "web", template_hash="")) == "ReplicaSet default/web"
    assert workload_of(pod("p", "db", kind="StatefulSet", template_hash="")) == "StatefulSet default/db"
    assert workload_of(pod("p", "once", kind="Job", template_hash="")) == "Job default/once"
    assert workload_of(Pod(metadata=ObjectMeta(name="bare", namespace="default"))) == ""


def daily(hour: float) -> int:
    """Pods of an office day: 60 from 8 to 20 o'clock, 15 at night."""
    return 60 if 8 <= hour % 24 < 20 else 15


def test_savings_last_at_most_until_the_load_rose_on_earlier_days() -> None:
    history = LoadHistory()
    at = NOW - 3 * 24 * HOUR
    while at <= NOW - 12 * HOUR + 6 * HOUR:  # until six in the morning
        history = sweep(history, *pods(daily(at.hour)), at=at)
        at += BUCKET
    at -= BUCKET
    evidence = savings_evidence(history, current_workloads(snapshot(*pods(15))).workloads, now=at)["default"]
    assert (at.hour, evidence.duration) == (6, 2 * HOUR)
    assert "08:00" in evidence.why


def test_a_load_that_no_earlier_day_had_at_this_time_sets_no_limit() -> None:
    history = LoadHistory()
    for i in range(24 * 4 + 8):
        history = sweep(history, *pods(60), at=NOW + i * BUCKET)
    at = NOW + (24 * 4 + 8) * BUCKET
    history = sweep(history, *pods(15), at=at)
    assert duration(history, *pods(15), at=at) == SCALE_IN_DURATION


def test_the_record_is_bounded_and_forgets() -> None:
    history = LoadHistory()
    many = [pod(f"{i}", f"w{i}", template_hash="") for i in range(MAX_WORKLOADS + 50)]
    history = sweep(history, *many, at=NOW)
    assert len(history.workloads) == MAX_WORKLOADS
    history = sweep(history, at=NOW + MINUTE)
    assert len(history.scale_ins) == MAX_SCALE_INS
    history = sweep(history, at=NOW + 8 * 24 * HOUR)
    assert (history.scale_ins, history.workloads) == ([], {})
    for i in range(2 * MAX_BUCKETS):
        history = sweep(history, *pods(3), at=NOW + 9 * 24 * HOUR + i * BUCKET)
    (series,) = history.pools.values()
    assert len(series.cpu) == len(series.memory) == MAX_BUCKETS
    assert len(load_history.encode(history)) < 200_000


def test_a_full_record_fits_into_an_annotation() -> None:
    series = load_history.PoolLoad(first=1_900_000, cpu=[9_999_999] * MAX_BUCKETS, memory=[99_999_999] * MAX_BUCKETS)
    name = f"StatefulSet {'n' * 30}/{'w' * 40}"
    load = Load(cpu=64_000, memory=262_144)
    scale_in = load_history.ScaleIn(
        workload=name, before=1000, after=10, at=NOW, requests=load, pool="p" * 30, ended=NOW + HOUR
    )
    history = LoadHistory(
        workloads={f"{name}{i}": Workload(pods=1000, requests=load, pool="p" * 30) for i in range(MAX_WORKLOADS)},
        scale_ins=[scale_in] * MAX_SCALE_INS,
        pools={f"pool-{i}": series for i in range(MAX_POOLS)},
    )
    assert len(load_history.encode(history)) < 200_000


def test_only_changes_that_matter_are_written() -> None:
    stored = sweep(LoadHistory(), *pods(50), at=NOW)

    def is_written(*pods: Pod, at: datetime) -> bool:
        return load_history.needs_writing(stored, sweep(stored, *pods, at=at))

    assert not is_written(*pods(50), at=NOW + MINUTE)
    assert not is_written(*pods(52), at=NOW + MINUTE)
    assert is_written(*pods(60), at=NOW + MINUTE)
    assert is_written(*pods(15), at=NOW + MINUTE)
    assert is_written(*pods(50), at=NOW + BUCKET)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "\x00",
        '{"version": 2}',
        '{"pools": {"default": {"first": 1, "cpu": [1, 2], "memory": [1]}}}',
        '{"scaleIns": [{"workload": "w", "before": 1, "after": 5, "at": "2026-05-01T12:00:00Z"}]}',
        '{"scaleIns": [{"workload": "w", "before": 5, "after": 1, "at": "2027-05-01T12:00:00Z"}]}',
        '{"scaleIns": [{"workload": "w", "before": 5, "after": 1, "at": "2026-05-01T12:00:00"}]}',
        '{"workloads": {"w": {"pods": "many"}}}',
    ],
)
def test_a_garbled_or_forged_record_is_refused(text: str) -> None:
    with pytest.raises(InvalidHistoryError):
        load_history.decode(text, now=NOW)
