"""On which nodes room is made for waiting pods: on none that are paused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from functions.disruption.room_requests import _plans
from shared.api.pause import Pause
from shared.base.struct import with_fields
from tests.unit.disruption.test_node_room import daemon

if TYPE_CHECKING:
    from tests.unit.disruption.conftest import Cluster

SINCE = datetime(2026, 5, 1, 11, tzinfo=UTC)


def test_a_paused_cluster_makes_no_room(cluster: Cluster) -> None:
    cluster.node("n", 4)
    for number in range(4):
        cluster.pod(f"web-{number}", "n", cpu=900)
    cluster.pods.append(daemon(500))
    state = cluster.state()
    assert [(node.metadata.name, len(plan.evict)) for node, plan in _plans(state)] == [("n", 1)]
    paused = with_fields(state.snapshot, pause=Pause(since=SINCE))
    assert list(_plans(with_fields(state, snapshot=paused))) == []
