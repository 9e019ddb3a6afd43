"""How many chunks of a CapacityBuffer are wanted: the one that wants most counts, and never more than the spec's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from shared.api import labels as names
from shared.api.kubernetes import Node, Pod
from shared.api.nodeclaim import NodeClaim
from shared.api.nodepool import NodePool
from shared.scheduling.buffers.demand import Demand, demands, lead_time, wanted
from shared.snapshot import Snapshot

NOW = datetime(2026, 11, 23, 8, tzinfo=UTC)


def node(name: str, **spec: object) -> Node:
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, Node)


def pod(name: str, on: str, *, cpu: str = "1500m", owner: str = "ReplicaSet", phase: str = "Running") -> Pod:
    owners = [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "controller": True}]
    raw: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "default", "ownerReferences": owners},
        "spec": {"nodeName": on, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": phase},
    }
    return msgspec.convert(raw, Pod)


def claim(took: timedelta | None) -> NodeClaim:
    created = NOW - timedelta(hours=1)
    ready = {
        "type": "Initialized",
        "status": "True",
        "lastTransitionTime": (created + (took or timedelta())).isoformat(),
    }
    raw = {
        "metadata": {"name": "n", "creationTimestamp": created.isoformat()},
        "status": {"conditions": [ready] if took is not None else []},
    }
    return msgspec.convert(raw, NodeClaim)


def pool(annotation: str) -> NodePool:
    return msgspec.convert(
        {"metadata": {"name": "default", "annotations": {names.LAUNCH_SECONDS: annotation}}}, NodePool
    )


@pytest.mark.parametrize(
    ("chunks", "expected"), [([], 10), ([3], 3), ([3, 7, 0], 7), ([30], 10), ([None], 10), ([0, None], 10), ([0], 0)]
)
def test_the_demand_for_most_counts_up_to_the_specs_number(chunks: list[int | None], expected: int) -> None:
    assert wanted(10, [Demand("a", count, "") for count in chunks]) == expected


def test_without_annotations_of_ours_there_is_no_demand() -> None:
    assert demands({"team": "web", names.LEAD_TIME: "5m"}, Snapshot(taken_at=NOW)) == ()


def test_nodes_count_that_take_pods_and_have_some_which_are_not_daemons() -> None:
    snapshot = Snapshot(
        taken_at=NOW,
        nodes=(
            node("a"),
            node("b"),
            node("cordoned", unschedulable=True),
            node("daemons"),
            node("room"),
            node("ended"),
        ),
        pods=(
            pod("1", "a"),
            pod("2", "a"),
            pod("3", "b"),
            pod("4", "cordoned"),
            pod("5", "daemons", owner="DaemonSet"),
            pod("6", "ended", phase="Succeeded"),
            pod("7", "", phase="Pending"),
        ),
    )
    (by_nodes, by_cores) = demands({names.PER_NODES: "1", names.PER_CORES: "1"}, snapshot)
    assert (by_nodes.chunks, by_nodes.why) == (2, "nodes with pods: 2")
    assert (by_cores.chunks, by_cores.why) == (5, "cores requested: 5")


@pytest.mark.parametrize(
    ("claims", "remembered", "annotations", "expected"),
    [
        ([], [], {}, timedelta(minutes=3, seconds=30)),
        ([None], [], {}, timedelta(minutes=3, seconds=30)),
        ([50], [], {}, timedelta(seconds=140)),
        ([40] * 9 + [50, 600], [], {}, timedelta(seconds=140)),
        ([40], ["70"], {}, timedelta(seconds=160)),
        ([40], ["70", "100", "soon"], {}, timedelta(seconds=190)),
        ([40], ["70", "²", "-5"], {}, timedelta(seconds=160)),
        ([40], ["9" * 18], {}, timedelta(minutes=20)),
        ([40], ["9" * 40], {}, timedelta(seconds=130)),
        ([7200], [], {}, timedelta(minutes=20)),
        ([40], ["70"], {names.LEAD_TIME: "1h"}, timedelta(hours=1)),
    ],
)
def test_the_lead_time(
    claims: list[int | None], remembered: list[str], annotations: dict[str, str], expected: timedelta
) -> None:
    snapshot = Snapshot(
        taken_at=NOW,
        node_claims=tuple(claim(None if seconds is None else timedelta(seconds=seconds)) for seconds in claims),
        node_pools=tuple(pool(text) for text in remembered),
    )
    assert lead_time(annotations, snapshot) == expected


def test_a_window_says_when_it_opens_by_its_own_clock() -> None:
    text = "0 18 * * * for 1h in Asia/Seoul"  # 09:00 UTC
    annotations = {names.SCHEDULE: text, names.LEAD_TIME: "30m"}
    moments = (NOW, NOW + timedelta(minutes=30), NOW + timedelta(minutes=60), NOW + timedelta(minutes=120))
    seen = [demands(annotations, Snapshot(taken_at=moment)) for moment in moments]
    assert [(demand.chunks, demand.why) for (demand,) in seen] == [
        (0, f"{text}: opens Mon 23 Nov 18:00"),
        (None, f"{text}: opens Mon 23 Nov 18:00, bought 30 min before"),
        (None, f"{text}: open"),
        (0, f"{text}: opens Tue 24 Nov 18:00"),
    ]


def of_signals(**annotations: str) -> list[tuple[int | None, str]]:
    named = {f"tenon.sh/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return [(d.chunks, d.why) for d in demands(named, Snapshot(taken_at=NOW))]


BEFORE, LATER = "2026-11-23T08:00:00Z", "2026-11-23T08:01:00Z"


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({}, (0, "no messages in queue orders")),
        ({"queue_chunks": "7", "queue_until": LATER}, (7, "messages in queue orders, until Mon 23 Nov 08:01")),
        ({"queue_chunks": "7", "queue_until": BEFORE}, (0, "messages in queue orders, until Mon 23 Nov 08:00")),
        ({"queue_chunks": "7"}, (0, "no messages in queue orders")),
        ({"queue_chunks": "many", "queue_until": LATER}, (0, "messages in queue orders, until Mon 23 Nov 08:01")),
    ],
)
def test_a_queue_wants_what_was_seen_as_long_as_it_holds(
    seen: dict[str, str], expected: tuple[int | None, str]
) -> None:
    assert of_signals(sqs_queue="orders", **seen) == [expected]


def test_an_alarm_and_an_event_want_all_chunks_as_long_as_they_hold() -> None:
    assert of_signals(cloudwatch_alarm="slow") == [(0, "no alarm slow")]
    assert of_signals(cloudwatch_alarm="slow", alarm_until=LATER) == [(None, "alarm slow, until Mon 23 Nov 08:01")]
    assert of_signals(cloudwatch_alarm="slow", alarm_until=BEFORE) == [(0, "alarm slow, until Mon 23 Nov 08:00")]
    assert of_signals(event="shop/Sale\nshop/Fair") == [(0, "no shop/Sale or shop/Fair")]
    assert of_signals(event="shop/Sale", event_until=LATER) == [(None, "shop/Sale, until Mon 23 Nov 08:01")]


def test_what_was_seen_counts_for_nothing_without_the_users_annotation() -> None:
    assert of_signals(queue_chunks="7", queue_until=LATER, alarm_until=LATER, event_until=LATER) == []
