"""CloudWatch's metrics as counters of the day, and what they cost to read."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import boto3
import pytest
from moto import mock_aws

from cli.cluster.live_reader import Deployment
from cli.export import families
from cli.export.cloudwatch import CloudWatchMetrics, monthly_usd
from shared.base import metrics, runtime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.export.exposition import Sample

MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
NOON = MIDNIGHT - timedelta(hours=12)
FULL = Deployment(table="t", bucket="b", has_all_metrics=True)
LEAN = Deployment(table="t", bucket="b")


@pytest.fixture(autouse=True)
def _aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with mock_aws(), runtime.using(runtime.Runtime(environ=os.environ)):
        yield


def put(metric: metrics.Metric, value: float, at: datetime, **owner: str) -> None:
    write(metric.name, value, at, {metrics.SERVICE: metric.function, **(owner or {metrics.CLUSTER: "c"})})


def write(name: str, value: float, at: datetime, dimensions: dict[str, str]) -> None:
    listed = [{"Name": key, "Value": text} for key, text in dimensions.items()]
    data = [{"MetricName": name, "Dimensions": listed, "Timestamp": at, "Value": value}]
    boto3.client("cloudwatch").put_metric_data(Namespace=metrics.NAMESPACE, MetricData=data)  # type: ignore[arg-type]


def value(samples: list[Sample], metric: metrics.Metric, suffix: str = "") -> float | None:
    family = families.of_metric(metric)
    return next((s.value for s in samples if s.family is family and s.suffix == suffix), None)


def test_a_counter_is_the_sum_since_midnight_whenever_the_export_began() -> None:
    put(metrics.LAUNCHED, 7, NOON - timedelta(hours=13))
    for hour in range(3):
        put(metrics.LAUNCHED, 2, NOON - timedelta(hours=hour, minutes=1))
    for _ in range(2):  # a second export, or one that was restarted
        assert value(CloudWatchMetrics("c").read(FULL, NOON), metrics.LAUNCHED) == 6


def test_the_counter_falls_after_midnight_once_the_day_is_complete() -> None:
    put(metrics.LAUNCHED, 5, MIDNIGHT - timedelta(minutes=1))
    put(metrics.LAUNCHED, 1, MIDNIGHT + timedelta(minutes=1))
    reader = CloudWatchMetrics("c")
    assert value(reader.read(FULL, MIDNIGHT + timedelta(minutes=3)), metrics.LAUNCHED) == 5
    assert value(reader.read(FULL, MIDNIGHT + timedelta(minutes=6)), metrics.LAUNCHED) == 1


def test_durations_have_a_sum_and_a_count_and_gauges_their_latest_value() -> None:
    for seconds in (0.5, 1.5):
        put(metrics.DECISION_SECONDS, seconds, NOON - timedelta(minutes=2))
    put(metrics.UNSCHEDULABLE, 4, NOON - timedelta(hours=2))
    put(metrics.UNSCHEDULABLE, 2, NOON - timedelta(minutes=3))
    samples = CloudWatchMetrics("c").read(FULL, NOON)
    assert value(samples, metrics.DECISION_SECONDS, "_sum") == 2
    assert value(samples, metrics.DECISION_SECONDS, "_count") == 2
    assert value(samples, metrics.UNSCHEDULABLE) == 2
    assert value(samples, metrics.CATALOG_NOT_FROM_AWS) is None  # never written
    assert value(samples, metrics.REPAIRED) == 0  # zero counts aren't written


def test_a_metric_of_another_cluster_is_not_read_and_the_fleets_catalog_is() -> None:
    put(metrics.LAUNCHED, 3, NOON - timedelta(minutes=2), cluster="d")
    put(metrics.CATALOG_STALE, 1, NOON - timedelta(minutes=2), fleet="f")
    assert value(CloudWatchMetrics("c").read(FULL, NOON), metrics.LAUNCHED) == 0
    assert value(CloudWatchMetrics("c").read(FULL, NOON), metrics.CATALOG_STALE) == 0
    in_fleet = Deployment(table="t", bucket="b", has_all_metrics=True, fleet="f")
    assert value(CloudWatchMetrics("c").read(in_fleet, NOON), metrics.CATALOG_STALE) == 1


def test_with_lean_observability_only_the_one_metric_that_is_written_is_paid_for() -> None:
    write(metrics.UNWELL, 3, NOON - timedelta(minutes=2), {metrics.CLUSTER: "c"})
    lean, full = CloudWatchMetrics("c"), CloudWatchMetrics("c")
    (sample,) = lean.read(LEAN, NOON)
    assert (sample.family, sample.value) == (families.UNWELL, 3)
    full.read(FULL, NOON)
    assert (lean.requested, full.requested) == (1, 1 + len(families.FROM_CLOUDWATCH))
    assert monthly_usd(300, has_all_metrics=False) < 0.1
    assert 1.5 < monthly_usd(300, has_all_metrics=True) < 3


def test_what_the_cluster_says_without_charge_is_not_read_from_cloudwatch() -> None:
    exported = {entry.metric for entry in families.FROM_CLOUDWATCH}
    by_the_cluster = {
        metrics.CREATED, metrics.DISRUPTED, metrics.REGISTERED, metrics.NODES, metrics.COST, metrics.PENDING,
        metrics.OLDEST_PENDING_SECONDS, metrics.CPU_UTILISATION, metrics.MEMORY_UTILISATION, metrics.PAUSED,
        metrics.BREAKERS, metrics.HELD, metrics.REALISED_PRICE,
    }  # fmt: skip
    assert set(metrics.ALL) - exported == by_the_cluster
