"""Pods that are resized in place: they get the room on their nodes, and pods that leave for that run elsewhere."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.kubernetes import kinds
from local.world import World, sample_objects
from tests.e2e.test_room_on_full_nodes import PODS_ON_NODE, cordoned, failures_to_make_room, fill
from tests.e2e.world_state import running

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj

MINUTE = timedelta(minutes=1)
LIMIT = 6 * MINUTE


def resize(world: World, pod: Obj, cpu: str) -> None:
    """Ask for that CPU by the resize subresource."""
    (container,) = pod["spec"]["containers"]
    requests = {**container["resources"]["requests"], "cpu": cpu}
    patch = {"spec": {"containers": [{**container, "resources": {"requests": requests}}]}}
    name = pod["metadata"]["name"]
    world.store.patch(kinds.PODS, name, patch, namespace="default", subresource="resize")


def requested_cpu(pod: Obj) -> str:
    """The CPU that the pod asks for."""
    return str(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def has(pod: Obj, cpu: str) -> bool:
    """Whether the container has got that CPU by a resize."""
    (status,) = pod["status"]["containerStatuses"]
    requests = (status.get("resources") or {}).get("requests") or {}
    return bool(requests.get("cpu") == cpu == status["allocatedResources"]["cpu"])


def pending_reasons(world: World) -> set[str]:
    conditions = (c for p in world.pods() for c in p["status"].get("conditions") or [])
    return {c["reason"] for c in conditions if c["type"] == "PodResizePending" and c["status"] == "True"}


@pytest.mark.flow
def test_pods_whose_requests_are_doubled_all_get_them(world: World) -> None:
    nodes = fill(world, 25)
    world.apply(sample_objects.budget("web", "20%"))
    least = 100
    small = {pod["metadata"]["uid"] for pod in world.pods(phase="Running")}
    for pod in world.pods(phase="Running"):
        resize(world, pod, "1800m")
    begun = world.clock.now()

    def all_are_resized() -> bool:
        nonlocal least
        least = min(least, len(running(world, "web")))
        # The admission webhook of a vertical autoscaler gives replacements the same requests.
        for pod in world.pods():
            if requested_cpu(pod) != "1800m" and not pod["spec"].get("nodeName"):
                resize(world, pod, "1800m")
        large = [p for p in world.pods(phase="Running") if requested_cpu(p) == "1800m"]
        return sum(p["metadata"]["uid"] not in small or has(p, "1800m") for p in large) == PODS_ON_NODE * len(nodes)

    world.run_until(all_are_resized, limit=30 * MINUTE)
    assert world.clock.now() - begun <= LIMIT
    assert least >= 80
    assert len(world.timeline.of("pod deleted")) == 50
    assert set(nodes) <= {node["metadata"]["name"] for node in world.nodes()}
    assert cordoned(world) == []


def test_an_infeasible_resize_evicts_nothing_and_takes_no_room(world: World) -> None:
    fill(world, 1)
    resize(world, world.pods(phase="Running")[0], "64")
    world.run_for(4 * MINUTE)
    assert pending_reasons(world) == {"Infeasible"}
    assert world.timeline.of("pod deleted") == []
    world.apply(sample_objects.deployment("small", 1, {"cpu": "100m"}))
    world.run_until(lambda: len(running(world, "small")) == 1, limit=5 * MINUTE)
    assert len(world.nodes()) == 1


def test_a_deferred_resize_without_movable_pods_gets_an_event(world: World) -> None:
    fill(world, 1, annotations={"karpenter.sh/do-not-disrupt": "true"})
    resize(world, world.pods(phase="Running")[0], "1800m")
    world.run_for(4 * MINUTE)
    assert pending_reasons(world) == {"Deferred"}
    assert [kind for kind, _ in failures_to_make_room(world)] == ["Node", "Pod"]
    assert world.timeline.of("pod deleted") == []


def test_the_kubelet_allocates_a_deferred_resize_when_a_pod_leaves(world: World) -> None:
    fill(world, 1, pool={"annotations": {"tenon.sh/make-room": "false"}})
    pod, other_pod, *_ = world.pods(phase="Running")
    resize(world, pod, "1800m")
    world.run_for(2 * MINUTE)
    assert pending_reasons(world) == {"Deferred"}
    world.store.delete(kinds.PODS, other_pod["metadata"]["name"], namespace="default")
    name = pod["metadata"]["name"]
    world.run_until(lambda: has(world.store.get(kinds.PODS, name, namespace="default"), "1800m"), limit=MINUTE)
    # kube-scheduler counts what the resized pod asks for: the replacement doesn't come back to this node.
    world.run_until(lambda: len(running(world, "web")) == PODS_ON_NODE, limit=5 * MINUTE)
    assert len(world.nodes()) == 2
