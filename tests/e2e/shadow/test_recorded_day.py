"""Shadow mode next to a recorded day of another autoscaler: its report is right to the cent."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from shared.api.kubernetes import Pod
from shared.api.pods import requests
from shared.api.quantity import fits, parse_resources, subtract
from tests.e2e.shadow.replay import cents, real_dollars, shadow_dollars
from tests.e2e.shadow.shadow_cluster import INTERVAL, RecordedDay, ShadowCluster, run_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.shadow.ledger import Day

NEW_PRICES = {6: 1.25, 150: 0.8}
"""Spot prices change before these runs, by this factor."""


def simulated(runs: Sequence[datetime]) -> tuple[dict[str, Day], list[InstanceTypeCatalog]]:
    """The days of shadow mode after these runs, and the catalog of each run."""
    recording = RecordedDay()
    catalogs: list[InstanceTypeCatalog] = []
    with ShadowCluster(recording.begin) as cluster:
        recording.start(cluster)
        for i, at in enumerate(runs):
            if i in NEW_PRICES:
                cluster.set_prices(NEW_PRICES[i])
            recording.apply(cluster, at)
            before = cluster.versions()
            assert cluster.run(at).ok
            assert cluster.versions() == before
            catalogs.append(cluster.catalog)
            check_virtual_fleet(cluster)
        assert cluster.aws.enforcement.denied == []
        assert cluster.control_plane.denied_requests() == []
        return cluster.days(), catalogs


def check_virtual_fleet(cluster: ShadowCluster) -> None:
    """Every workload pod that waits or is on a node of the other autoscaler is bound, and all nodes have room."""
    record = cluster.record()
    pods = {pod["metadata"]["uid"]: pod for pod in cluster.store.list(cluster.store.kind("v1", "Pod"))}
    assert record.bindings.keys() <= pods.keys()
    free = {n.name: parse_resources(n.claim.status.allocatable) for n in record.nodes if n.ends is None}
    for uid, binding in record.bindings.items():
        if binding.node in free:
            requested = requests(msgspec.convert(pods[uid], Pod))
            assert fits(requested, free[binding.node]), (binding.node, pods[uid]["metadata"]["name"])
            free[binding.node] = subtract(free[binding.node], requested)
    scaled = {
        node["metadata"]["name"]
        for node in cluster.store.list(cluster.store.kind("v1", "Node"))
        if "karpenter.sh/nodepool" in node["metadata"]["labels"]
    }
    for uid, pod in pods.items():
        owner: Any = next(iter(pod["metadata"].get("ownerReferences", [])), {})
        is_mobile = pod["spec"].get("nodeName", "") in {*scaled, ""} and "deletionTimestamp" not in pod["metadata"]
        if is_mobile and owner.get("kind") == "ReplicaSet" and pod["status"]["phase"] in {"Pending", "Running"}:
            assert uid in record.bindings or uid in record.unplaced, pod["metadata"]["name"]


def compare(runs: Sequence[datetime]) -> dict[str, Day]:
    """Check every figure in dollars against the replay; returns the days."""
    days, catalogs = simulated(runs)
    recording = RecordedDay()
    observed = list(recording.objects_at(runs))
    real = real_dollars(observed, catalogs, scaled=True)
    unscaled = real_dollars(observed, catalogs, scaled=False)
    shadow = shadow_dollars(days.values(), runs, catalogs)
    assert set(real) == {date for date, day in days.items() if day.usage}
    for date, day in days.items():
        if not day.usage:
            continue
        assert day.dollars("real") == cents(real[date])
        assert day.dollars("unscaled") == cents(unscaled[date])
        assert day.dollars("shadow") == cents(shadow[date])
        assert day.unpriced_seconds("real") == day.unpriced_seconds("shadow") == 0
    assert sum(day.seconds for day in days.values()) == (runs[-1] - runs[0]).total_seconds()
    return days


def test_three_hours_across_a_missed_run_are_right_to_the_cent() -> None:
    recording = RecordedDay()
    runs = run_times(recording.begin, timedelta(hours=3), skipped=lambda i: i in {10, 11})
    (day,) = compare(runs).values()
    assert day.runs == len(runs) == 35
    assert day.gap_seconds == 3 * INTERVAL.total_seconds()
    assert day.launched >= 1
    assert sum(day.removed.values()) >= 1


@pytest.mark.long
def test_a_day_is_right_to_the_cent_and_split_at_midnight() -> None:
    recording = RecordedDay()
    runs = run_times(recording.begin, timedelta(hours=24))
    days = compare(runs)
    assert sorted(days) == ["2026-03-02", "2026-03-03"]
