"""A run of shadow mode that dies anywhere, or twice at once, counts nothing twice and loses nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import boto3
import pytest

from shared.base.blobs import BlobForm, MalformedBlobError
from shared.shadow import record as records
from shared.shadow import store
from shared.shadow.store import RecordChangedError
from tests.e2e.shadow.objects import FIVE, MINUTE, node_class, node_pool, pod, put, real_node
from tests.e2e.shadow.shadow_cluster import CLUSTER, ShadowCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.shadow.ledger import Day
    from shared.shadow.record import Record

BEGIN = datetime(2026, 3, 2, 23, 48, tzinfo=UTC)
RUNS = 6
"""Across midnight, so that a day is archived."""
LINES = (1, 10, 40, 100, 200, 400, 700, 1000, 1400, 2000)


def simulated(before_each_run: Callable[[ShadowCluster, datetime], None]) -> tuple[Record, dict[str, Day]]:
    """What is stored after six runs of a changing cluster; ``before_each_run`` may try the same event before."""
    with ShadowCluster(BEGIN) as cluster:
        created = BEGIN - 60 * MINUTE
        put(cluster, node_class(), node_pool(), real_node("a", created=created), real_node("b", created=created))
        put(cluster, *(pod(f"old-{i}", "ab"[i % 2], cpu="700m", created=created) for i in range(6)))
        for i in range(RUNS):
            at = BEGIN + i * FIVE
            put(cluster, *(pod(f"new-{i}-{j}", cpu="900m", created=at - 2 * MINUTE) for j in range(i)))
            if i > 2:
                cluster.remove("Pod", f"old-{i}", namespace="default")
            cluster.clock.skip_to(at)
            before_each_run(cluster, at)
            assert cluster.run(at).ok
        return cluster.record(), cluster.days()


@pytest.fixture(scope="module")
def undisturbed() -> tuple[Record, dict[str, Day]]:
    return simulated(lambda _cluster, _at: None)


def test_the_undisturbed_runs_launch_and_archive(undisturbed: tuple[Record, dict[str, Day]]) -> None:
    record, days = undisturbed
    assert sorted(days) == ["2026-03-02", "2026-03-03"]
    assert [day.date for day in record.days] == ["2026-03-03"]
    assert sum(day.launched for day in days.values()) >= 2
    assert sum(day.seconds for day in days.values()) == 25 * 60


def test_a_crash_at_any_line_changes_nothing(undisturbed: tuple[Record, dict[str, Day]]) -> None:
    crashed = []

    def crash(cluster: ShadowCluster, at: datetime) -> None:
        for lines in LINES:
            cluster.faults.crash_after_lines("shadow", lines)
            crashed.append(not cluster.run(at).ok)

    assert simulated(crash) == undisturbed
    assert sum(crashed) > RUNS * len(LINES) / 2


def test_a_crash_before_or_after_each_write_changes_nothing(undisturbed: tuple[Record, dict[str, Day]]) -> None:
    tried: set[tuple[str, str]] = set()

    def crash(cluster: ShadowCluster, at: datetime) -> None:
        crashes = cluster.faults.crash_around_each_write("shadow")
        for _ in range(4):
            cluster.run(at)
        tried.update(crashes.tried)
        cluster.faults.clear()

    assert simulated(crash) == undisturbed
    assert {when for _, when in tried} == {"before", "after"}


def test_of_two_runs_at_once_one_counts() -> None:
    with ShadowCluster(BEGIN) as cluster:
        put(cluster, node_class(), node_pool(), real_node("a"), pod("1", "a"))
        cluster.run(BEGIN)
        s3 = boto3.client("s3")
        first = store.load(s3, cluster.bucket, CLUSTER)
        cluster.run(BEGIN + FIVE)
        with pytest.raises(RecordChangedError):
            store.save(s3, cluster.bucket, CLUSTER, first.record, etag=first.etag)
        with pytest.raises(RecordChangedError):
            store.save(s3, cluster.bucket, CLUSTER, first.record, etag="")
        assert cluster.record().days[-1].seconds == 300


def test_a_record_that_can_not_be_read_begins_again() -> None:
    with ShadowCluster(BEGIN) as cluster:
        put(cluster, node_class(), node_pool(), real_node("a"), pod("1", "a"))
        s3 = boto3.client("s3")
        s3.put_object(Bucket=cluster.bucket, Key=store.record_key(CLUSTER), Body=b"not a record")
        assert cluster.run(BEGIN).ok
        assert cluster.record().since == BEGIN


def test_a_record_of_another_version_is_not_read() -> None:
    newer = BlobForm(records.Record, version=2, noun="a record")
    with pytest.raises(MalformedBlobError, match="of version 2; version 1 is needed"):
        records.FORM.decode(newer.encode(records.Record()))
