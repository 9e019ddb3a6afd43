"""The most that a user can do who may write pods, workloads, CapacityBuffers and events in one namespace.

Whatever is written there, no more is bought than the NodePool's limits allow, and no node of others goes.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds
from local.world import World, sample_objects
from shared.api import labels as names
from tests.e2e.world_state import running

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj

MINUTE = timedelta(minutes=1)
CPUS = 8
TEAM = "team"
LIMITS = {"cpu": str(CPUS)}
OF_OTHER_OBJECTS = (
    names.LAUNCH_GROUP,
    names.PLANNED_PODS,
    names.TRIED_VERSION,
    names.RETRIED,
    names.DECISION,
    names.REPLACES,
)
FORGED = {
    **dict.fromkeys(OF_OTHER_OBJECTS, '{"default/other": "node"}'),
    names.SPOT_SHARE: "100%",
    names.LOST_WORK: "24h",
    names.EXPECTED_GROWTH: "true",
    names.PAUSED: "true",
    names.CLUSTER_LIMITS: "nodes=1000000",
    names.STANDBY: "1000",
    names.SHIFTED_ZONES: "us-east-1a,us-east-1b,us-east-1c",
    names.DRIFT_WAVES: "100%",
    names.NODE_REPAIR: "reboot",
    "karpenter.sh/nodeclaim-termination-timestamp": "2020-01-01T00:00:00Z",
    "controller.kubernetes.io/pod-deletion-cost": "-2147483648",
}
"""Annotations that mean something on other objects, on a pod."""


@pytest.fixture
def shared_world(world: World) -> World:
    """Two pods of somebody else on one node of a NodePool with a limit."""
    pool = sample_objects.node_pool(
        {"karpenter.sh/capacity-type": ["on-demand"], "karpenter.k8s.aws/instance-cpu": ["2", "4"]},
        disruption={"consolidateAfter": "1m", "consolidationPolicy": "WhenEmpty"},
        limits=LIMITS,
    )
    world.apply([sample_objects.node_class(world), pool, namespace()])
    world.apply(sample_objects.deployment("others", 2, {"cpu": "700m", "memory": "1Gi"}))
    world.run_until(lambda: len(running(world, "others")) == 2, limit=10 * MINUTE)
    return world


def namespace() -> Obj:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}


def of_team(obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "namespace": TEAM}}


def bought(world: World) -> int:
    """The vCPUs of all NodeClaims."""
    return sum(int(claim.get("status", {}).get("capacity", {}).get("cpu", "0")) for claim in world.claims())


def unharmed(world: World) -> dict[str, Any]:
    """The others' pods and their nodes."""
    return {p["metadata"]["uid"]: p["spec"]["nodeName"] for p in running(world, "others")}


def settle(world: World, before: dict[str, Any]) -> int:
    """Ten minutes; the most that is bought in them. The others' pods stay where they are all the time."""
    most = 0
    for _ in range(10):
        world.run_for(MINUTE)
        most = max(most, bought(world))
        assert unharmed(world) == before
    assert world.failures() == []
    assert world.dead_letters() == []
    return most


def test_pods_buy_up_to_the_limits_and_move_nobody_elses_whatever_their_annotations_say(shared_world: World) -> None:
    before = unharmed(shared_world)
    pods = sample_objects.deployment(
        "many", 40, {"cpu": "900m"}, annotations=FORGED, priorityClassName="system-node-critical"
    )
    kept = sample_objects.deployment("kept", 1, {"cpu": "100m"}, annotations={names.DO_NOT_DISRUPT: "true"})
    shared_world.apply([of_team(pods), of_team(kept), of_team(sample_objects.budget("many", 0))])
    assert CPUS // 2 < settle(shared_world, before) <= CPUS
    shared_world.scale(TEAM, "many", 0)
    settle(shared_world, before)


def test_a_capacity_buffer_keeps_room_up_to_the_limits_and_none_once_it_is_deleted(shared_world: World) -> None:
    before = unharmed(shared_world)
    template = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "chunk", "namespace": TEAM},
        "template": sample_objects.deployment("chunk", 0, {"cpu": "500m"})["spec"]["template"],
    }
    buffers: list[Obj] = [
        {
            "apiVersion": "autoscaling.x-k8s.io/v1beta1",
            "kind": "CapacityBuffer",
            "metadata": {"name": f"huge-{n}", "namespace": TEAM, "annotations": FORGED},
            "spec": {"podTemplateRef": {"name": "chunk"}, "replicas": 2**31 - 1},
        }
        for n in range(2)
    ]
    shared_world.apply([template, *buffers])
    assert CPUS // 2 < settle(shared_world, before) <= CPUS
    kind = shared_world.store.kind("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer")
    for buffer in buffers:
        shared_world.store.delete(kind, buffer["metadata"]["name"], namespace=TEAM)
    settle(shared_world, before)
    assert len(shared_world.nodes()) == len(set(before.values()))


def test_forged_events_and_leases_of_a_namespace_change_nothing(shared_world: World) -> None:
    before = unharmed(shared_world)
    (node,) = set(before.values())
    about = [("Pod", "default", p["metadata"]["name"]) for p in running(shared_world, "others")] + [("Node", "", node)]
    for number, (kind, own, name) in enumerate(about):
        for reason in ("Evicted", "Preempted", "TaintManagerEviction", "SpotInterrupted", "DisruptionBlocked"):
            event = {
                "metadata": {"name": f"{reason.lower()}-{number}", "namespace": TEAM},
                "involvedObject": {"kind": kind, "name": name, "namespace": TEAM if own else ""},
                "reason": reason,
                "message": json.dumps(FORGED),
                "source": {"component": "tenon"},
                "reportingComponent": "tenon",
            }
            shared_world.store.create(kinds.EVENTS, event, namespace=TEAM)
    lease = {
        "metadata": {"name": "tenon", "namespace": TEAM},
        "spec": {"holderIdentity": "x", "leaseDurationSeconds": 9},
    }
    shared_world.store.create(kinds.LEASES, lease, namespace=TEAM)
    claims = {c["metadata"]["uid"] for c in shared_world.claims()}
    settle(shared_world, before)
    assert {c["metadata"]["uid"] for c in shared_world.claims()} == claims
