"""Nodes are registered at once when they join: until then, none of their pods can run."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shared.api import labels as names

if TYPE_CHECKING:
    from local.aws.invocation import Invocation
    from local.kubernetes.objects import Change
    from local.world import World

NODES = 8


def test_the_unregistered_taint_is_removed_by_a_reconcile_within_two_seconds_of_joining(spot_default: World) -> None:
    world = spot_default
    joined: dict[str, datetime] = {}
    registered: dict[str, datetime] = {}
    reconciles: list[Invocation] = []

    def watch(change: Change) -> None:
        if change.kind.kind != "Node" or change.type == "DELETED":
            return
        name = change.object["metadata"]["name"]
        taints = {t["key"] for t in change.object["spec"].get("taints", [])}
        if names.UNREGISTERED_TAINT in taints:
            joined.setdefault(name, world.clock.now())
        elif name in joined:
            registered.setdefault(name, world.clock.now())

    world.store.subscribe(watch)
    world.aws.functions.observe(lambda i: reconciles.append(i) if "lifecycle" in i.function else None)
    world.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "apart"},
            "spec": {
                "replicas": NODES,
                "selector": {"matchLabels": {"app": "apart"}},
                "template": {
                    "metadata": {"labels": {"app": "apart"}},
                    "spec": {
                        "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}],
                        "affinity": {
                            "podAntiAffinity": {
                                "requiredDuringSchedulingIgnoredDuringExecution": [
                                    {
                                        "topologyKey": "kubernetes.io/hostname",
                                        "labelSelector": {"matchLabels": {"app": "apart"}},
                                    }
                                ]
                            }
                        },
                    },
                },
            },
        }
    )
    world.run_until(lambda: len(world.pods(phase="Running")) == NODES)
    assert len(joined) == NODES
    assert registered.keys() == joined.keys()
    for name, at in joined.items():
        reconcile = max(i.at for i in reconciles if i.at <= registered[name])
        # In a hostile world it may have begun before the node joined, and read it all the same.
        assert abs(reconcile - at) <= timedelta(seconds=2)
