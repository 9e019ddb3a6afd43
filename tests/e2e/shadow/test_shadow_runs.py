"""Single runs of shadow mode: it changes nothing, decides as Tenon does, and counts each second once."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from shared.shadow.ledger import exact_dollars
from tests.e2e.shadow.objects import FIVE, MINUTE, START, node_class, node_pool, pod, put, real_node
from tests.e2e.shadow.shadow_cluster import ShadowCluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def cluster() -> Iterator[ShadowCluster]:
    with ShadowCluster(START) as running:
        for obj in (node_class(), node_pool()):
            running.put(obj)
        yield running
        assert running.aws.enforcement.denied == []
        assert running.control_plane.denied_requests() == []


def price(cluster: ShadowCluster, instance_type: str) -> Fraction:
    return Fraction(str(cluster.catalog.on_demand[instance_type]))


def dollars(cluster: ShadowCluster, fleet: Any) -> Fraction:
    return sum((exact_dollars(day.usage, fleet) for day in cluster.days().values()), Fraction())


def test_the_virtual_fleet_begins_with_what_would_be_taken_over(cluster: ShadowCluster) -> None:
    put(cluster, real_node("a"), real_node("b"), pod("1", "a"), pod("2", "a"), pod("3", "b"))
    assert cluster.run(START).ok
    record = cluster.record()
    assert sorted(node.name for node in record.nodes) == ["a", "b"]
    assert {uid: binding.node for uid, binding in record.bindings.items()} == {"uid-1": "a", "uid-2": "a", "uid-3": "b"}
    (day,) = cluster.days().values()
    assert (day.adopted, day.launched, day.seconds, day.usage) == (2, 0, 0, [])


def test_half_empty_nodes_are_consolidated_as_tenon_would(cluster: ShadowCluster) -> None:
    """Two pods on two nodes for four fit on one: the real ones stay, the virtual fleet has one less."""
    put(cluster, real_node("a"), real_node("b"), pod("1", "a"), pod("2", "b"))
    cluster.run(START)
    cluster.run(START + FIVE)
    (day,) = cluster.days().values()
    assert day.moved >= 1
    assert sum(day.removed.values()) >= 1
    cluster.run(START + 2 * FIVE)
    last = cluster.record().days[-1].samples[-1]
    assert last.real_nodes == 2
    assert last.shadow < last.real
    assert dollars(cluster, "real") == 2 * price(cluster, "m5.xlarge") / 6
    assert dollars(cluster, "shadow") < dollars(cluster, "real")


def test_new_pods_launch_a_node_from_when_they_were_created(cluster: ShadowCluster) -> None:
    put(cluster, real_node("a"), *(pod(str(i), "a") for i in range(3)))
    cluster.run(START)
    created = START + 2 * MINUTE
    put(cluster, real_node("b", created=created + MINUTE), pod("new", "b", cpu="3", created=created, waited=75))
    cluster.run(START + FIVE)
    record = cluster.record()
    (day,) = record.days
    (launch,) = (event for event in day.events if event.action == "launched")
    assert (launch.at, launch.pods, launch.offering.instance_type) == (created, 1, "m5.xlarge")
    assert (day.waited_pods, day.waited_seconds, day.for_new_nodes) == (1, 75, 1)
    hour = Fraction(3600)
    xlarge = price(cluster, "m5.xlarge")
    assert dollars(cluster, "shadow") == xlarge * (300 + 180) / hour
    assert dollars(cluster, "real") == xlarge * (300 + 120) / hour


def test_a_pod_of_the_second_of_the_last_run_counts_from_then(cluster: ShadowCluster) -> None:
    put(cluster, real_node("a"), pod("1", "a", cpu="3"))
    cluster.run(START)
    put(cluster, pod("new", cpu="3", created=START))
    cluster.run(START + FIVE)
    (launch,) = (event for event in cluster.record().days[0].events if event.action == "launched")
    assert launch.at == START


def test_a_pod_that_fits_nowhere_is_reported_with_the_reason(cluster: ShadowCluster) -> None:
    put(cluster, real_node("a"), pod("1", "a"))
    cluster.run(START)
    put(cluster, pod("huge", cpu="64", created=START + MINUTE))
    cluster.run(START + FIVE)
    cluster.run(START + 2 * FIVE)
    (day,) = cluster.days().values()
    (unplaced,) = day.unplaced
    assert unplaced.pod == "default/huge"
    assert "cpu" in unplaced.reason
    assert unplaced.seconds == day.unplaced_seconds == 9 * 60


def test_an_empty_node_ends_when_consolidate_after_is_over(cluster: ShadowCluster) -> None:
    disruption = {"consolidateAfter": "1m", "consolidationPolicy": "WhenEmpty"}
    put(cluster, node_pool(disruption=disruption), real_node("a"), pod("1", "a"))
    cluster.run(START)
    cluster.remove("Pod", "1", namespace="default")
    cluster.run(START + FIVE)
    cluster.run(START + 2 * FIVE)
    (day,) = cluster.days().values()
    (removed,) = (event for event in day.events if event.action == "removed")
    assert (removed.reason, removed.at) == ("Empty", START + FIVE + MINUTE)
    assert dollars(cluster, "shadow") == price(cluster, "m5.xlarge") * 6 / 60
    assert dollars(cluster, "real") == price(cluster, "m5.xlarge") * 10 / 60


def test_nodes_that_nobody_scales_keep_their_pods_and_take_others(cluster: ShadowCluster) -> None:
    put(cluster, real_node("system", labels={"eks.amazonaws.com/nodegroup": "system"}), pod("dns", "system"))
    put(cluster, real_node("a"), pod("1", "a", cpu="500m"))
    cluster.run(START)
    cluster.run(START + FIVE)
    record = cluster.record()
    assert record.bindings["uid-1"].node == "system"
    assert "uid-dns" not in record.bindings
    assert [node.ends is None for node in record.nodes if node.name == "a"] == [False]
    # Pods that are really bound there take the room back.
    put(cluster, *(pod(f"more-{i}", "system", created=START + 6 * MINUTE) for i in range(2)))
    put(cluster, pod("large", "system", cpu="900m", created=START + 6 * MINUTE))
    cluster.run(START + 2 * FIVE)
    assert cluster.record().bindings["uid-1"].node != "system"
    assert dollars(cluster, "unscaled") == price(cluster, "m5.xlarge") / 6


def test_nothing_changes_in_the_cluster_or_in_ec2(cluster: ShadowCluster) -> None:
    put(cluster, real_node("a"), real_node("b"), pod("1", "a"), pod("2", "b"), pod("new", cpu="3"))
    before, calls = cluster.versions(), len(cluster.aws.calls.all)
    for i in range(4):
        assert cluster.run(START + i * FIVE).ok
    assert cluster.versions() == before
    operations = {(call.service, call.operation) for call in cluster.aws.calls.all[calls:]}
    reads = {call for call in operations if call[1].startswith(("Describe", "Get", "List"))}
    assert operations - reads == {("s3", "PutObject")}
    assert cluster.record().days[-1].launched >= 1


def test_a_doubled_event_counts_once(cluster: ShadowCluster) -> None:
    put(cluster, real_node("a"), pod("1", "a"))
    cluster.run(START)
    cluster.run(START + FIVE)
    before = cluster.record()
    cluster.run(START + FIVE + MINUTE, event_time=START + FIVE)
    assert cluster.record() == before
    # A late event of an earlier time changes nothing either.
    cluster.run(START + FIVE + 2 * MINUTE, event_time=START)
    assert cluster.record() == before


def test_a_missed_run_is_counted_as_a_gap(cluster: ShadowCluster) -> None:
    put(cluster, real_node("a"), real_node("gone"), pod("1", "a", cpu="3"), pod("2", "gone", cpu="3"))
    cluster.run(START)
    cluster.run(START + FIVE)
    cluster.remove("Node", "gone")
    cluster.remove("NodeClaim", "claim-gone")
    cluster.remove("Pod", "2", namespace="default")
    cluster.run(START + 3 * FIVE)
    (day,) = cluster.days().values()
    assert (day.runs, day.seconds, day.gap_seconds, day.skipped_seconds) == (3, 900, 600, 0)
    # EC2 doesn't know when it ended: the other autoscaler pays for it until it was last seen.
    assert dollars(cluster, "real") == price(cluster, "m5.xlarge") * (15 + 5) / 60
    assert dollars(cluster, "shadow") == price(cluster, "m5.xlarge") * (15 + 15) / 60


def test_an_outage_is_counted_for_neither_fleet(cluster: ShadowCluster) -> None:
    put(cluster, real_node("a"), pod("1", "a", cpu="3"))
    cluster.run(START)
    cluster.run(START + FIVE)
    cluster.run(START + 3 * 60 * MINUTE)
    cluster.run(START + 3 * 60 * MINUTE + FIVE)
    (day,) = cluster.days().values()
    assert (day.seconds, day.skipped_seconds) == (600, 175 * 60)
    assert dollars(cluster, "real") == dollars(cluster, "shadow") == price(cluster, "m5.xlarge") / 6


def test_a_run_across_midnight_is_split_and_the_day_archived(cluster: ShadowCluster) -> None:
    put(cluster, real_node("a"), pod("1", "a", cpu="3"))
    midnight = datetime(2026, 3, 3, tzinfo=UTC)
    cluster.run(midnight - 3 * MINUTE)
    cluster.run(midnight + 2 * MINUTE)
    assert {d.date: d.seconds for d in cluster.record().days} == {"2026-03-02": 180, "2026-03-03": 120}
    cluster.run(midnight + 7 * MINUTE)
    assert {d.date: d.seconds for d in cluster.record().days} == {"2026-03-03": 420}
    assert {date: d.seconds for date, d in cluster.days().items()} == {"2026-03-02": 180, "2026-03-03": 420}


def test_the_deployed_schedule_runs_the_function(cluster: ShadowCluster) -> None:
    put(cluster, real_node("a"), pod("1", "a", cpu="3"))
    actors = (cluster.aws.event_buses, cluster.aws.functions)
    for _ in range(12):
        cluster.clock.skip_to(cluster.clock.now() + MINUTE)
        while sum(actor.step(cluster.clock.now()) for actor in actors):
            pass
    (day,) = cluster.days().values()
    assert day.runs >= 2
    assert day.seconds == (day.runs - 1) * 300
    assert day.gap_seconds == 0
