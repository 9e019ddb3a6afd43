"""DaemonSets on new nodes: their pods and those that the node was launched for run there together."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.world.sample_objects import daemon_set, deployment
from tests.e2e.world_state import events

if TYPE_CHECKING:
    from local.world import World


@pytest.mark.flow
def test_a_node_has_room_for_a_daemon_whose_requests_come_from_a_limit_range(spot_default: World) -> None:
    world = spot_default
    world.apply(
        [
            {
                "apiVersion": "v1",
                "kind": "LimitRange",
                "metadata": {"name": "defaults", "namespace": "default"},
                "spec": {"limits": [{"type": "Container", "default": {"cpu": "3", "memory": "1Gi"}}]},
            },
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "metadata": {"name": "agent", "namespace": "default"},
                "spec": {
                    "selector": {"matchLabels": {"app": "agent"}},
                    "template": {
                        "metadata": {"labels": {"app": "agent"}},
                        "spec": {
                            "containers": [{"name": "agent", "image": "x"}],
                            "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
                        },
                    },
                },
            },
            deployment("web", 1, {"cpu": "500m", "memory": "128Mi"}),
        ]
    )
    world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=timedelta(minutes=3))
    world.run_for(timedelta(minutes=2))
    assert len(world.pods(phase="Running")) == 2
    assert len(world.timeline.of("claim created")) == 1


def test_a_daemon_set_whose_device_no_node_has_is_named_once_and_blocks_nothing(spot_default: World) -> None:
    world = spot_default
    world.apply(
        [
            daemon_set("sampler", {"cpu": "100m", "lab.example.org/probe": "2"}),
            daemon_set("logs", {"cpu": "100m"}),
            deployment("web", 3, {"cpu": "1500m", "memory": "256Mi"}),
        ]
    )
    world.run_until(lambda: len(world.pods(phase="Running")) >= 4, limit=timedelta(minutes=3))
    nodes = len(world.timeline.of("claim created"))
    world.run_for(timedelta(minutes=12))
    assert len(world.timeline.of("claim created")) == nodes
    assert {p["metadata"]["labels"]["app"] for p in world.pods(phase="Running")} == {"web", "logs"}
    (event,) = events(world, kind="DaemonSet")
    assert (event["reason"], event["type"], event["count"]) == ("DaemonSetIgnored", "Warning", 1)
    assert (event["involvedObject"]["name"], event["metadata"]["namespace"]) == ("sampler", "default")
    assert event["message"] == (
        "lab.example.org/probe is offered by no instance type of NodePool default; "
        "its pods are left out of the room that new nodes keep for DaemonSets"
    )
