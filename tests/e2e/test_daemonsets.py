"""DaemonSets on new nodes: their pods and those that the node was launched for run there together."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from local.world.sample_objects import deployment

if TYPE_CHECKING:
    from local.world import World


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
