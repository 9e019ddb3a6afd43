"""A function that crashes at any call: the next run finishes what it was doing."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds
from shared.cluster.lease import NAMESPACE

if TYPE_CHECKING:
    from local.kubernetes.objects import Change
    from local.world import World

IDLE_LIMIT = timedelta(hours=6)
MIN_AVAILABLE = 3
BUDGET: dict[str, Any] = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "inflate"},
    "spec": {"minAvailable": MIN_AVAILABLE, "selector": {"matchLabels": {"app": "inflate"}}},
}


class ReadyPods:
    """The lowest number of ready pods of the deployment between ``begin`` and ``end``, over every change."""

    def __init__(self, world: World) -> None:
        self._ready: set[str] = set()
        self.fewest: int | None = None
        world.store.subscribe(self._change)

    def begin(self) -> None:
        self.fewest = len(self._ready)

    def end(self) -> int:
        fewest, self.fewest = self.fewest, None
        assert fewest is not None
        return fewest

    def _change(self, change: Change) -> None:
        if change.kind.kind != "Pod" or change.object["metadata"].get("labels", {}).get("app") != "inflate":
            return
        uid = change.object["metadata"]["uid"]
        conditions = {c["type"]: c["status"] for c in change.object.get("status", {}).get("conditions", [])}
        is_deleted = change.type == "DELETED" or "deletionTimestamp" in change.object["metadata"]
        if conditions.get("Ready") == "True" and not is_deleted:
            self._ready.add(uid)
        else:
            self._ready.discard(uid)
        if self.fewest is not None:
            self.fewest = min(self.fewest, len(self._ready))


def run_lifecycle(world: World, ready_pods: ReadyPods) -> None:
    """Launch a node for pods, delete its NodeClaim under a budget so that it is replaced, and scale to zero.

    It begins without a lease, as in a new cluster, so that its creation is among the calls each time.
    """
    for lease in world.store.list(kinds.LEASES):
        if lease["metadata"]["namespace"] == NAMESPACE:
            world.store.delete(kinds.LEASES, lease["metadata"]["name"], namespace=NAMESPACE)
    world.scale("default", "inflate", MIN_AVAILABLE + 1)
    world.run_until_idle(limit=IDLE_LIMIT)
    assert len(world.pods(phase="Running")) == MIN_AVAILABLE + 1
    ready_pods.begin()
    world.store.delete(world.store.kind("karpenter.sh/v1", "NodeClaim"), world.claims()[0]["metadata"]["name"])
    world.run_until_idle(limit=IDLE_LIMIT)
    assert ready_pods.end() >= MIN_AVAILABLE
    assert_consistent(world, pods=MIN_AVAILABLE + 1)
    world.scale("default", "inflate", 0)
    world.run_until_idle(limit=IDLE_LIMIT)
    assert_consistent(world, pods=0)


def assert_consistent(world: World, *, pods: int) -> None:
    assert len(world.pods(phase="Running")) == pods
    claimed = sorted(c["status"]["providerID"].rsplit("/", 1)[-1] for c in world.claims())
    assert claimed == sorted(i.id for i in world.instances())
    assert sorted(c["status"]["nodeName"] for c in world.claims()) == sorted(
        n["metadata"]["name"] for n in world.nodes()
    )
    if not pods:
        assert claimed == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "required_calls"),
    [
        ("provisioner", {"kubernetes POST nodeclaims", "ec2 CreateLaunchTemplate", "ec2 CreateFleet"}),
        ("lifecycle", {"kubernetes PATCH nodes/NAME", "kubernetes PATCH nodeclaims/NAME/status"}),
        (
            "termination",
            {
                "kubernetes POST pods/NAME/eviction",
                "kubernetes PATCH nodeclaims/NAME",
                "kubernetes DELETE nodes/NAME",
                "ec2 TerminateInstances",
                "sqs SendMessage",
            },
        ),
    ],
)
def test_a_crash_between_any_two_calls_leaves_nothing_behind_and_violates_no_budget(
    spot_default: World, function: str, required_calls: set[str]
) -> None:
    world = spot_default
    world.apply(BUDGET)
    ready_pods = ReadyPods(world)
    crashes = world.faults.crash_around_each_write(function)
    required = {(call, when) for call in required_calls for when in ("before", "after")}
    for _ in range(3):
        run_lifecycle(world, ready_pods)
        if required <= crashes.tried and not crashes.remaining:
            break
    assert required <= crashes.tried
    assert not crashes.remaining
