"""What holds after a failure of AWS, and the workloads that are run through one."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tests.e2e.interruptions.environment import deployment, fill, small_nodes

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj
    from local.world import World

MINUTE = timedelta(minutes=1)


def is_true(obj: Obj, condition_type: str) -> bool:
    """Whether the object has the condition."""
    conditions: list[dict[str, Any]] = obj.get("status", {}).get("conditions", [])
    return any(c["type"] == condition_type and c["status"] == "True" for c in conditions)


def message(obj: Obj, condition_type: str) -> str:
    """The message of the object's condition; empty without it."""
    conditions: list[dict[str, Any]] = obj.get("status", {}).get("conditions", [])
    return next((str(c.get("message", "")) for c in conditions if c["type"] == condition_type), "")


def node_pool(world: World, name: str = "default") -> Obj:
    """The stored NodePool."""
    return world.store.get(world.store.kind("karpenter.sh/v1", "NodePool"), name)


def node_class(world: World, name: str = "default") -> Obj:
    """The stored EC2NodeClass."""
    return world.store.get(world.store.kind("karpenter.k8s.aws/v1", "EC2NodeClass"), name)


def small_cluster(world: World, pods: int) -> None:
    """Spot nodes with two vCPUs each, two pods on each, some minutes old."""
    small_nodes(world)
    world.apply([deployment("web", pods)])
    fill(world, pods)
    world.run_for(2 * MINUTE)


def launched(world: World) -> int:
    """How many instances were ever launched."""
    return len(world.aws.instances.all)


def assert_nothing_lost_or_doubled(world: World, *, pods: int) -> None:
    """All pods run; each instance has its NodeClaim and its node, and none is without pods or has been forgotten."""
    running = [p for p in world.pods(phase="Running") if "deletionTimestamp" not in p["metadata"]]
    assert len(running) == pods
    instances = sorted(i.id for i in world.instances())
    assert sorted(c["status"].get("providerID", "").rpartition("/")[2] for c in world.claims()) == instances
    assert sorted(n["spec"]["providerID"].rpartition("/")[2] for n in world.nodes()) == instances
    assert not [c for c in world.claims() if "deletionTimestamp" in c["metadata"]]
