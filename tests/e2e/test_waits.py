"""Waits of drains and replacements say what they wait for, and one node's wait is no other's."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.aws import backends
from local.kubernetes import kinds
from local.world.sample_objects import deployment, node_class, node_pool
from tests.e2e.world_state import events

if TYPE_CHECKING:
    from local.world import World

LIMIT = timedelta(minutes=6)
MINUTE = timedelta(minutes=1)
BIG = {"cpu": "1200m", "memory": "256Mi"}
POOL = {
    "karpenter.sh/capacity-type": ["on-demand"],
    "node.kubernetes.io/instance-type": ["c5.large", "m5.large"],
}


def start(world: World, replicas: int, **template: object) -> None:
    """A pool of small nodes that are only replaced if they drift, and a pod on each of its nodes."""
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
    world.apply([node_class(world), node_pool(POOL, template=template, disruption=disruption)])
    world.apply(deployment("web", replicas, BIG))
    world.run_until(lambda: len(world.pods(phase="Running")) == replicas, limit=LIMIT)


def delete_claims(world: World) -> None:
    kind = world.store.kind("karpenter.sh/v1", "NodeClaim")
    for claim in world.claims():
        world.store.delete(kind, claim["metadata"]["name"])


def test_a_protected_instance_keeps_its_own_node_claim_only_and_is_named(world: World) -> None:
    start(world, 3)
    first, *unprotected = world.instances()
    (protected,) = [i for r in backends.ec2(world.region).all_reservations() for i in r.instances if i.id == first.id]
    protected.disable_api_termination = True
    delete_claims(world)
    gone = {i.id for i in unprotected}
    world.run_until(lambda: not gone & {i.id for i in world.instances()}, limit=LIMIT)
    world.run_for(20 * MINUTE)
    assert first.id in {i.id for i in world.instances()}
    (event,) = events(world, "FailedTerminating")
    assert event["count"] == 1
    assert f"EC2 refuses to terminate instance {first.id}: OperationNotPermitted" in event["message"]
    (claim,) = [c for c in world.claims() if "deletionTimestamp" in c["metadata"]]
    assert event["involvedObject"]["name"] == claim["metadata"]["name"]
    (waiting,) = [c for c in claim["status"]["conditions"] if c["type"] == "InstanceTerminating"]
    assert (waiting["status"], waiting["reason"]) == ("False", "TerminationRefused")
    assert (world.dead_letters(), world.failures()) == ([], [])

    protected.disable_api_termination = False
    world.run_until(lambda: first.id not in {i.id for i in world.instances()}, limit=16 * MINUTE)
    world.run_until(lambda: all("deletionTimestamp" not in c["metadata"] for c in world.claims()), limit=LIMIT)


def test_a_volume_that_is_not_detached_is_named_after_a_minute(world: World) -> None:
    start(world, 1)
    (node,) = world.nodes()
    attachment = {
        "metadata": {"name": "csi-7"},
        "spec": {
            "attacher": "ebs.csi.aws.com",
            "nodeName": node["metadata"]["name"],
            "source": {"persistentVolumeName": "pvc-ledger"},
        },
    }
    world.store.create(kinds.VOLUME_ATTACHMENTS, attachment)
    delete_claims(world)
    world.run_for(MINUTE)
    assert events(world, "AwaitingVolumeDetachment") == []
    world.run_for(8 * MINUTE)
    (event,) = events(world, "AwaitingVolumeDetachment")
    assert event["involvedObject"]["name"] == node["metadata"]["name"]
    assert event["message"] == "Drained, but volume pvc-ledger is waiting to be detached"
    world.store.delete(kinds.VOLUME_ATTACHMENTS, "csi-7")
    world.run_until(lambda: node["metadata"]["name"] not in {n["metadata"]["name"] for n in world.nodes()}, limit=LIMIT)


@pytest.mark.flow
def test_a_node_whose_startup_taint_stays_is_named_and_so_is_what_waits_for_it(world: World) -> None:
    start(world, 1)
    (home,) = world.nodes()
    pools = world.store.kind("karpenter.sh/v1", "NodePool")
    taint = {"key": "example.com/agent", "effect": "NoSchedule"}
    world.store.patch(pools, "default", {"spec": {"template": {"spec": {"startupTaints": [taint]}}}})
    world.apply(deployment("late", 1, {"cpu": "300m"}, nodeSelector={"karpenter.sh/nodepool": "default"}))
    world.apply(deployment("next", 1, BIG))
    world.run_for(22 * MINUTE)
    late = events(world, "NotInitialized")
    assert late
    assert {e["involvedObject"]["kind"] for e in late} == {"NodeClaim"}
    assert all('startup taint "example.com/agent:NoSchedule" still exists' in e["message"] for e in late)
    blocked = [e["message"] for e in events(world, "DisruptionBlocked")]
    assert any("isn't initialized" in message and "example.com/agent" in message for message in blocked), blocked
    assert home["metadata"]["name"] in {n["metadata"]["name"] for n in world.nodes()}
