"""Nodes that reboot in place: what tests of them apply, write and read."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from local.kubelets.behavior import Timing
from local.world import sample_objects
from shared.api import labels as names
from tests.e2e.world_state import running

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj
    from local.world import World

POOL = "default"
MINUTE = timedelta(minutes=1)
TIMING = Timing(boot=(30.0, 30.0), restart=(60.0, 60.0), ready=(4.0, 4.0), pull=(1.0, 1.0))
ON = {"reboot": "on"}


def start(world: World, *, protected: int = 0, evictable: int = 1, **pool: Any) -> Obj:
    """One node with these pods; its NodeClaim."""
    world.apply(sample_objects.node_class(world))
    world.apply(sample_objects.node_pool({names.INSTANCE_TYPE: ["m5.xlarge"]}, name=POOL, **pool))
    world.apply(sample_objects.deployment("web", evictable, {"cpu": "500m"}))
    kept = sample_objects.deployment("kept", protected, {"cpu": "500m"})
    kept["spec"]["template"]["metadata"]["annotations"] = {names.DO_NOT_DISRUPT: "true"}
    world.apply(kept)
    world.run_until(lambda: len(running(world)) == protected + evictable, limit=10 * MINUTE)
    world.run_until(lambda: all(is_initialized(n) for n in world.nodes(POOL)))
    (claim,) = world.claims()
    return claim


def condition(claim: Obj, type_: str) -> Obj:
    return next((c for c in claim["status"]["conditions"] if c["type"] == type_), {})


def rebooting(world: World, name: str) -> tuple[str, str]:
    """Status and reason of condition Rebooting."""
    current = condition(claim_of(world, name), "Rebooting")
    return current.get("status", ""), current.get("reason", "")


def claim_of(world: World, name: str) -> Obj:
    return next((c for c in world.claims() if c["metadata"]["name"] == name), {"status": {"conditions": []}})


def is_deleted(world: World, name: str) -> bool:
    return "deletionTimestamp" in claim_of(world, name).get("metadata", {"deletionTimestamp": ""})


def is_initialized(node: Obj) -> bool:
    return bool(node["metadata"]["labels"].get(names.INITIALIZED) == "true")


def boot_id(node: Obj) -> str:
    return str(node["status"]["nodeInfo"]["bootID"])


def taints(node: Obj) -> set[str]:
    return {t["key"] for t in node["spec"].get("taints") or []}


def annotate(world: World, name: str, annotations: dict[str, str]) -> None:
    kind = world.store.kind("karpenter.sh/v1", "NodeClaim")
    world.store.patch(kind, name, {"metadata": {"annotations": annotations}})


def request(world: World, claim: Obj, *, grace: str | None = "1m", reason: str = "RebootRequested") -> None:
    """Ask for a reboot as Karpenter's node repair does: annotation first, then the conditions."""
    if grace is not None:
        annotate(world, claim["metadata"]["name"], {names.REBOOT_GRACE_PERIOD: grace})
    at = world.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    new = [
        {"type": "DisruptionReason", "status": "True", "reason": "Unhealthy", "message": "Unhealthy"},
        {"type": "Rebooting", "status": "True", "reason": reason, "message": "rebooting for Accelerated/XID"},
    ]
    set_conditions(world, claim, [{**c, "lastTransitionTime": at} for c in new])


def set_conditions(world: World, claim: Obj, conditions: list[Obj]) -> None:
    types, name = {c["type"] for c in conditions}, claim["metadata"]["name"]
    kept = [c for c in claim_of(world, name)["status"]["conditions"] if c["type"] not in types]
    kind = world.store.kind("karpenter.sh/v1", "NodeClaim")
    world.store.patch(kind, name, {"status": {"conditions": [*kept, *conditions]}}, subresource="status")


def calls(world: World) -> int:
    return sum(c.operation == "RebootInstances" and not c.error for c in world.aws.calls.all)


def is_called(world: World, times: int) -> bool:
    return calls(world) == times


def succeeded(world: World, claim: Obj) -> bool:
    (node,) = world.nodes(POOL)
    name = claim["metadata"]["name"]
    return rebooting(world, name) == ("False", "RebootSucceeded") and is_initialized(node)


def assert_no_failures(world: World) -> None:
    assert world.failures() == []
    assert world.dead_letters() == []
