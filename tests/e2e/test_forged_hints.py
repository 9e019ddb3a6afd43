"""Hints are not trusted: a well-formed hint with false content causes a reconcile and changes nothing."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from shared.base import hints

if TYPE_CHECKING:
    from local.world import World


def forge(world: World, queue: str, detail_type: str, keys: list[str], *, source: str = hints.RELAY) -> None:
    """Send to a queue what EventBridge would deliver for a forged event."""
    envelope = {
        "version": "0",
        "id": "00000000-0000-0000-0000-000000000000",
        "account": "123456789012",
        "region": world.region,
        "resources": [],
        "time": world.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        "source": source,
        "detail-type": detail_type,
        "detail": {"cluster": world.cluster, "keys": keys},
    }
    world.send_malformed_message(queue, json.dumps(envelope))


def cluster_state(world: World) -> dict[str, Any]:
    return {
        "nodes": sorted((n["metadata"]["uid"], json.dumps(n["spec"])) for n in world.nodes()),
        "claims": sorted(c["metadata"]["uid"] for c in world.claims()),
        "deleting": [
            o["metadata"]["name"] for o in (*world.nodes(), *world.claims()) if "deletionTimestamp" in o["metadata"]
        ],
        "pods": sorted((p["metadata"]["uid"], p["spec"].get("nodeName", "")) for p in world.pods()),
        "instances": sorted(i.id for i in world.instances()),
    }


@pytest.mark.flow
def test_forged_hints_change_nothing(spot_default: World) -> None:
    world = spot_default
    world.scale("default", "inflate", 3)
    world.run_until_idle()
    assert len(world.pods(phase="Running")) == 3
    before = cluster_state(world)
    nodes = [node["metadata"]["name"] for node in world.nodes()]
    claims = [claim["metadata"]["name"] for claim in world.claims()]
    pods = [f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in world.pods()]
    instances = [instance.id for instance in world.instances()]
    forge(world, "disruption", hints.NODES_EMPTIED, [*nodes, "missing"])
    forge(world, "disruption", hints.REQUEUE, nodes, source=hints.FUNCTIONS)
    forge(world, "termination", hints.NODES_DELETING, [*nodes, "missing"])
    forge(world, "termination", hints.NODE_CLAIMS_DELETING, [*claims, "missing"])
    forge(world, "termination", hints.DRAINS_UNBLOCKED, [*nodes, *claims, "missing"])
    forge(world, "termination", hints.DRAIN, [*nodes, *claims], source=hints.FUNCTIONS)
    forge(world, "termination", hints.INSTANCES_ORPHANED, instances, source=hints.FUNCTIONS)
    forge(world, "provisioning", hints.PODS_UNSCHEDULABLE, [*pods, "default/missing"])
    forge(world, "provisioning", hints.NODE_POOLS_CHANGED, ["missing"])
    world.run_for(timedelta(minutes=5))
    assert cluster_state(world) == before
    assert world.failures() == []
    assert world.dead_letters() == []


def test_a_hint_for_another_cluster_goes_to_the_dead_letter_queue(spot_default: World) -> None:
    world = spot_default
    body = {
        "source": hints.RELAY,
        "detail-type": hints.NODES_DELETING,
        "time": world.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        "detail": {"cluster": "other", "keys": ["n"]},
    }
    world.send_malformed_message("termination", json.dumps(body))
    world.run_for(timedelta(seconds=30))
    (letter,) = world.dead_letters()
    assert 'for cluster "other"' in letter.attributes["reason"]
