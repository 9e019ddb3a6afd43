"""No single message, object or dependency drains or buys more than an hour's limits: all of them, within one hour.

Every kind of message that reaches a queue, every object that decisions read, and every service, one after the other,
in an order that a seed draws. What they have drained and bought together is within the limits of the hour.
"""

from __future__ import annotations

import json
import random
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from infra.cluster.event_rules import INTERRUPTIONS
from local.world import World, sample_objects
from shared.api import labels as names
from shared.base import hints
from tests.e2e.interruptions.environment import event, health, send, small_nodes
from tests.e2e.test_capacity_buffers import pod_template
from tests.e2e.test_cluster_limits import NODE_POOL, apart
from tests.e2e.test_forged_hints import forge

if TYPE_CHECKING:
    from collections.abc import Callable

NODES = 8
REMOVALS = 2
LAUNCHES = 14
MINUTE = timedelta(minutes=1)
CLAIM = ("karpenter.sh/v1", "NodeClaim")
SERVICES = ("dynamodb", "ec2", "eventbridge", "iam", "s3", "sqs", "ssm")
FUNCTIONS_HINTS = frozenset({hints.REQUEUE, hints.DRAIN, hints.ROOM_NEEDED, hints.INSTANCES_ORPHANED})
QUEUES = {
    "provisioning": (hints.PODS_UNSCHEDULABLE, hints.PODS_CREATED, hints.NODES_CHANGED, hints.NODE_POOLS_CHANGED,
                     hints.CAPACITY_BUFFERS_CHANGED, hints.RELAY_STARTED, hints.CATALOG_MISSING, hints.SCHEDULED),
    "disruption": (hints.NODES_EMPTIED, hints.NODES_DELETED, hints.NODES_UNDERUTILIZED, hints.REQUEUE),
    "termination": (hints.NODES_DELETING, hints.NODE_CLAIMS_DELETING, hints.DRAINS_UNBLOCKED, hints.DRAIN,
                    hints.ROOM_NEEDED, hints.INSTANCES_ORPHANED),
}  # fmt: skip
"""Every detail type of hints, by the queue that it is sent to."""
FOLLOWED = 1
"""Nodes that messages about one instance may take in addition: a reservation's warning is followed for an on-demand
instance, because EC2 doesn't tell reclaimed reservations (docs/interruptions.md)."""
EVENTS: dict[str, dict[str, Any]] = {
    "SpotInterruption": {"instance-action": "terminate"},
    "Rebalance": {},
    "StateChange": {"state": "terminated"},
    "ReservationInterruption": {"instance-reservation": "cr-1"},
}


def instances(world: World) -> list[str]:
    return sorted(i.id for i in world.instances())


def names_of(world: World) -> list[str]:
    pods = [f"{p['metadata']['namespace']}/{p['metadata']['name']}" for p in world.pods()]
    return [*(o["metadata"]["name"] for o in (*world.nodes(), *world.claims())), *pods, *instances(world)]


def patch(world: World, kind: tuple[str, str], name: str, change: dict[str, Any], namespace: str = "") -> None:
    world.store.patch(world.store.kind(*kind), name, change, namespace=namespace)


def annotate_claims(world: World, annotation: str, value: str) -> None:
    for claim in world.claims():
        patch(world, CLAIM, claim["metadata"]["name"], {"metadata": {"annotations": {annotation: value}}})


def fail_service(world: World, service: str) -> None:
    world.faults.fail_service(service)
    world.run_for(3 * MINUTE)
    world.faults.clear()


def poison(world: World, queue: str) -> None:
    world.send_malformed_message(queue)


def message_attacks() -> dict[str, Callable[[World], None]]:
    def hint(queue: str, detail_type: str) -> Callable[[World], None]:
        source = hints.FUNCTIONS if detail_type in FUNCTIONS_HINTS else hints.RELAY
        return lambda world: forge(world, queue, detail_type, names_of(world)[: hints.MAX_KEYS], source=source)

    def about_one(rule: str) -> Callable[[World], None]:
        (detail_type,) = INTERRUPTIONS[rule]["detail_type"]
        return lambda world: send(
            world, event(world, detail_type, {"instance-id": instances(world)[0], **EVENTS[rule]})
        )

    def announced(minutes: float) -> Callable[[World], None]:
        return lambda world: send(world, health(world, *instances(world), start=world.clock.now() + minutes * MINUTE))

    return {
        **{f"hint {queue}: {kind}": hint(queue, kind) for queue, types in QUEUES.items() for kind in types},
        **{f"event {rule}": about_one(rule) for rule in EVENTS},
        **{f"event Health in {minutes} min": announced(minutes) for minutes in (-60, 1.5, 60, 60 * 24 * 14)},
        **{f"poison {queue}": partial(poison, queue=queue) for queue in QUEUES},
    }


def object_attacks() -> dict[str, Callable[[World], None]]:
    def drift(world: World) -> None:
        patch(world, NODE_POOL, "default", {"spec": {"template": {"metadata": {"labels": {"forged": "true"}}}}})

    def expire(world: World) -> None:
        patch(world, NODE_POOL, "default", {"spec": {"template": {"spec": {"expireAfter": "1m"}}}})

    def node_class(world: World) -> None:
        world.apply(sample_objects.node_class(world, tags={"forged": "true"}))

    def unready(world: World) -> None:
        name = world.nodes()[0]["metadata"]["name"]
        patch(world, ("v1", "Node"), name, {"metadata": {"labels": {names.INITIALIZED: "false"}}})

    def buffer(world: World) -> None:
        spec = {"podTemplateRef": {"name": "web"}, "replicas": 1000}
        metadata = {"name": "forged", "namespace": "default"}
        forged = {"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": metadata}
        world.apply([pod_template({"cpu": "1500m"}), {**forged, "spec": spec}])

    def pods(world: World) -> None:
        world.apply(apart("endless", 300))

    def lease(world: World) -> None:
        period = int(world.clock.now().timestamp()) // 300
        forged = json.dumps({str(period): {"default": [0, 0.0, -1000, -5]}})
        patch(
            world, ("coordination.k8s.io/v1", "Lease"), f"tenon-{world.cluster}",
            {"metadata": {"annotations": {"tenon.sh/shifted-zones": "nonsense=x", "tenon.sh/paused-by": forged}}},
            "kube-system",
        )  # fmt: skip

    def evicted(world: World) -> None:
        pod = world.pods()[0]["metadata"]
        involved = {"kind": "Pod", "namespace": "default", "name": pod["name"], "uid": pod["uid"]}
        metadata = {"name": "forged", "namespace": "default"}
        world.apply(
            {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": involved,
             "reason": "Evicted", "source": {"component": "kubelet"}, "message": "forged", "type": "Warning"}
        )  # fmt: skip

    def cost(world: World) -> None:
        pod = world.pods()[0]["metadata"]["name"]
        annotations = {"controller.kubernetes.io/pod-deletion-cost": "-2147483648", "karpenter.sh/do-not-disrupt": "x"}
        patch(world, ("v1", "Pod"), pod, {"metadata": {"annotations": annotations}}, "default")

    now = "2020-01-01T00:00:00+00:00"
    claim_annotations = {
        "tenon.sh/maintenance-starts": now,
        "tenon.sh/rebalance-recommended": now,
        names.REBOOT_CALLED_AT: now,
        names.REBOOTS: now,
        names.PLANNED_PODS: "default/none",
        names.REPLACES: "forged",
        names.DYNAMIC_RESOURCES: "example.com/gpu",
        "tenon.sh/termination-requeue-at": now,
        "karpenter.sh/nodeclaim-termination-timestamp": now,
    }
    return {
        "NodePool drifts": drift,
        "NodePool expires": expire,
        "node class drifts": node_class,
        "Node isn't initialized": unready,
        "CapacityBuffer of 1,000": buffer,
        "300 pods": pods,
        "Lease": lease,
        "Event": evicted,
        "Pod": cost,
        **{
            f"NodeClaims' {key}": partial(annotate_claims, annotation=key, value=value)
            for key, value in claim_annotations.items()
        },
    }


def test_every_kind_of_hint_and_event_is_forged() -> None:
    all_hints = {
        value
        for name, value in vars(hints).items()
        if (name.isupper() and isinstance(value, str) and " " in value) or name in {"REQUEUE", "DRAIN"}
    }
    assert {kind for types in QUEUES.values() for kind in types} == all_hints
    assert {*EVENTS, "Health"} == set(INTERRUPTIONS)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))])
def test_all_that_can_be_forged_in_an_hour_stays_within_its_limits(world: World, seed: int) -> None:
    limits = f"launches={LAUNCHES}, removals={REMOVALS}"
    small_nodes(world, annotations={names.HOURLY_LIMITS: limits}, capacity_types=["on-demand"])
    world.apply(apart("web", NODES))
    world.run_until(lambda: len(world.pods(phase="Running")) == NODES, limit=10 * MINUTE)
    began = world.clock.now()
    original = {n["metadata"]["uid"] for n in world.nodes()}
    attacks = {**message_attacks(), **object_attacks()}
    attacks |= {f"without {s}": partial(fail_service, service=s) for s in SERVICES}
    order = sorted(attacks)
    random.Random(seed).shuffle(order)  # noqa: S311 - not for security
    history: list[str] = []
    before = (0, NODES)
    for name in order:
        attacks[name](world)
        world.run_for(timedelta(seconds=30))
        after = (drained(world, original), len(world.aws.instances.all))
        if after != before:
            history.append(f"{name}: {after[0]} nodes drained, {after[1]} launched so far")
        before = after
    assert drained(world, original) <= REMOVALS + FOLLOWED, "\n".join(history)
    assert len(world.aws.instances.all) <= LAUNCHES + REMOVALS + FOLLOWED, "\n".join(history)
    assert world.clock.now() - began < timedelta(hours=1)
    # A hint may name what no NodeClaim or node can be called: then a read is denied.
    assert all(" cannot get " in line for denied in world.denied_requests() for line in denied.splitlines())
    world.expect_denials()


def drained(world: World, original: set[str]) -> int:
    """How many of the nodes are gone, or going."""
    kept = {
        n["metadata"]["uid"]
        for n in world.nodes()
        if "deletionTimestamp" not in n["metadata"]
        and all("deletionTimestamp" not in c["metadata"] for c in claims_of(world, n["metadata"]["name"]))
    }
    return len(original - kept)


def claims_of(world: World, node: str) -> list[dict[str, Any]]:
    return [c for c in world.claims() if c.get("status", {}).get("nodeName") == node]
