"""What tests read of a world, in one place for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes import kinds

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj
    from local.world import World


def running(world: World, app: str = "") -> list[Obj]:
    """The running pods, of one app or of all, without those that are being deleted."""
    return [
        pod
        for pod in world.pods(phase="Running")
        if "deletionTimestamp" not in pod["metadata"] and (not app or pod["metadata"]["labels"].get("app") == app)
    ]


def events(world: World, reason: str = "", *, name: str = "", kind: str = "") -> list[Obj]:
    """The events with a reason, about objects of a name and kind; "" for any."""
    return [
        event
        for event in world.store.list(kinds.EVENTS)
        if reason in ("", event["reason"])
        and name in ("", event["involvedObject"]["name"])
        and kind in ("", event["involvedObject"]["kind"])
    ]


def capacity_buffer(world: World, name: str) -> Obj:
    """The stored CapacityBuffer of the namespace default."""
    kind = world.store.kind("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer")
    return world.store.get(kind, name, namespace="default")
