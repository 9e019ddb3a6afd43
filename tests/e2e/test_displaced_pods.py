"""Machines that have no room for the pod which they were launched for are not launched again and again."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.kubernetes import kinds
from local.kubernetes.objects import timestamp
from local.world.sample_objects import deployment
from shared.api.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.kubernetes.objects import Change, Obj
    from local.world import World

LIMIT = timedelta(minutes=10)


def cpu_of(node: Obj) -> int:
    return parse_quantity("cpu", node["status"]["capacity"]["cpu"])


def record_event(world: World, pod: Obj, reason: str, **fields: object) -> None:
    name = pod["metadata"]["name"]
    event = {
        "metadata": {"name": f"{name}.displaced", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": name},
        "reason": reason,
        "type": "Warning",
        "lastTimestamp": timestamp(world.clock.now()),
        **fields,
    }
    world.store.create(kinds.EVENTS, event, namespace="default")


def close(world: World, node: str) -> None:
    """Keep other pods from the node, as the lack of resources would."""
    taints = world.store.get(kinds.NODES, node)["spec"].get("taints") or []
    world.store.patch(kinds.NODES, node, {"spec": {"taints": [*taints, {"key": "full", "effect": "NoSchedule"}]}})


def evict(world: World, pod: Obj) -> None:
    """What a kubelet does under memory pressure: the pod ends, and an event says why."""
    status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    name = pod["metadata"]["name"]
    world.store.patch(kinds.PODS, name, {"status": status}, namespace="default", subresource="status")
    record_event(world, pod, "Evicted", source={"component": "kubelet"})
    close(world, pod["spec"]["nodeName"])


def preempt(world: World, pod: Obj, by: Obj) -> None:
    """What kube-scheduler does for a pod of higher priority: it deletes the pod, and an event names the preemptor."""
    name = pod["metadata"]["name"]
    preemptor = {"kind": "Pod", "namespace": "default", "name": by["metadata"]["name"]}
    record_event(world, pod, "Preempted", related=preemptor, reportingComponent="default-scheduler")
    world.store.delete(kinds.PODS, name, namespace="default")
    close(world, pod["spec"]["nodeName"])


def run_with_evictions(world: World, duration: timedelta, *, enough_cpu: int) -> None:
    """Each pod of ``web`` that starts on a node with fewer milli-cores is evicted, within two seconds."""
    end = world.clock.now() + duration
    while world.clock.now() < end:
        world.run_for(timedelta(seconds=2))
        nodes = {node["metadata"]["name"]: node for node in world.nodes()}
        for pod in world.pods(phase="Running"):
            node = nodes.get(pod["spec"]["nodeName"])
            if node is not None and cpu_of(node) < enough_cpu:
                evict(world, pod)


@pytest.mark.flow
def test_a_pod_evicted_from_two_machines_gets_a_larger_one(spot_default: World) -> None:
    world = spot_default
    world.apply(deployment("web", 1, {"cpu": "500m", "memory": "256Mi"}))
    world.run_until(lambda: len(world.pods(phase="Running")) == 1, limit=LIMIT)
    first = max(cpu_of(node) for node in world.nodes())
    run_with_evictions(world, LIMIT, enough_cpu=first + 1)
    assert len(world.timeline.of("claim created")) == 3
    (pod,) = world.pods(phase="Running")
    assert cpu_of(world.store.get(kinds.NODES, pod["spec"]["nodeName"])) > first


def test_after_three_machines_no_other_is_launched_and_an_event_says_why(spot_default: World) -> None:
    world = spot_default
    world.apply(deployment("web", 1, {"cpu": "500m", "memory": "256Mi"}))
    run_with_evictions(world, LIMIT, enough_cpu=10**9)
    assert len(world.timeline.of("claim created")) == 3
    (pod,) = world.pending()
    messages = [
        event["message"]
        for event in world.store.list(kinds.EVENTS)
        if event["involvedObject"]["name"] == pod["metadata"]["name"] and event["reason"] == "FailedScheduling"
    ]
    assert any("3 machines in a row that were launched for pods of this workload had no room" in m for m in messages)


AGENT = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "agent", "namespace": "default"},
    "spec": {
        "selector": {"matchLabels": {"app": "agent"}},
        "template": {
            "metadata": {"labels": {"app": "agent"}},
            "spec": {"containers": [{"name": "agent", "image": "x"}], "tolerations": [{"operator": "Exists"}]},
        },
    },
}


@pytest.mark.parametrize(("preemptor", "most_claims"), [("agent", 3), ("urgent", 100)])
def test_only_preemption_by_daemons_is_braked(spot_default: World, preemptor: str, most_claims: int) -> None:
    # Pods of low priority that hold room for others are meant to be preempted.
    world = spot_default
    world.apply([AGENT, deployment("urgent", 1, {"cpu": "100m"})])
    world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=LIMIT)
    before = len(world.timeline.of("claim created"))
    world.apply(deployment("web", 1, {"cpu": "1500m", "memory": "256Mi"}))
    end = world.clock.now() + timedelta(minutes=6)
    while world.clock.now() < end:
        world.run_for(timedelta(seconds=2))
        pods = world.pods(phase="Running")
        for pod in pods:
            if pod["metadata"]["labels"]["app"] == "web" and "deletionTimestamp" not in pod["metadata"]:
                node = pod["spec"]["nodeName"]
                by = next(
                    p
                    for p in pods
                    if p["metadata"]["labels"]["app"] == preemptor
                    and (preemptor != "agent" or p["spec"]["nodeName"] == node)
                )
                preempt(world, pod, by)
    created = len(world.timeline.of("claim created")) - before
    assert created <= most_claims
    assert created > 3 or preemptor == "agent"


def taint_new_nodes(world: World, until: Callable[[Obj], bool]) -> None:
    """What a policy agent does: each new node gets a taint that its NodePool doesn't know, and keeps it."""

    def add_taint(change: Change) -> None:
        node = change.object
        if change.kind.kind == "Node" and change.type == "ADDED" and until(node):
            taints = [*(node["spec"].get("taints") or []), {"key": "example.com/unscanned", "effect": "NoSchedule"}]
            world.store.patch(kinds.NODES, node["metadata"]["name"], {"spec": {"taints": taints}})

    world.store.subscribe(add_taint)


def refused_messages(world: World) -> list[str]:
    return [
        e["message"]
        for e in world.store.list(kinds.EVENTS)
        if e["reason"] == "FailedScheduling" and "didn't bind them there" in e["message"]
    ]


def test_a_pod_that_two_of_its_nodes_refused_gets_no_third_for_half_an_hour(spot_default: World) -> None:
    world = spot_default
    taint_new_nodes(world, lambda _: True)
    world.apply(deployment("web", 1, {"cpu": "700m", "memory": "256Mi"}))
    world.run_for(timedelta(minutes=25))
    claims = [entry.name for entry in world.timeline.of("claim created")]
    assert len(claims) == 2
    (message,) = set(refused_messages(world))
    assert all(name in message for name in claims)
    world.run_for(timedelta(minutes=25))
    assert 2 < len(world.timeline.of("claim created")) <= 4


def test_the_other_pods_of_a_pool_get_nodes_while_one_is_refused(spot_default: World) -> None:
    world = spot_default
    taint_new_nodes(world, lambda _: not any(p["metadata"]["labels"]["app"] == "shop" for p in world.pods()))
    world.apply(deployment("web", 1, {"cpu": "700m", "memory": "256Mi"}))
    world.run_for(timedelta(minutes=8))
    assert len(world.timeline.of("claim created")) == 2
    world.apply(deployment("shop", 3, {"cpu": "900m", "memory": "256Mi"}))
    world.run_until(lambda: len(world.pods(phase="Running")) >= 3, limit=LIMIT)
