"""A node's life, cut off at every call: whatever the function was doing, the next run finishes it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds
from shared.cluster.lease import NAMESPACE

if TYPE_CHECKING:
    from local.kubernetes.objects import Change
    from local.world import World

LIMIT = timedelta(hours=6)
LEAST = 3
BUDGET: dict[str, Any] = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "inflate"},
    "spec": {"minAvailable": LEAST, "selector": {"matchLabels": {"app": "inflate"}}},
}


class Watched:
    """How many pods of the deployment are ready, seen at every change: the fewest, since it was told to look."""

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
        leaving = change.type == "DELETED" or "deletionTimestamp" in change.object["metadata"]
        if conditions.get("Ready") == "True" and not leaving:
            self._ready.add(uid)
        else:
            self._ready.discard(uid)
        if self.fewest is not None:
            self.fewest = min(self.fewest, len(self._ready))


def a_life(world: World, watched: Watched) -> None:
    """Pods come, a node is launched for them, registered, used, given up under a budget, replaced, and all goes.

    It begins without a lease, as in a cluster that is new to it, so that making one is among the calls each time.
    """
    for lease in world.store.list(kinds.LEASES):
        if lease["metadata"]["namespace"] == NAMESPACE:
            world.store.delete(kinds.LEASES, lease["metadata"]["name"], namespace=NAMESPACE)
    world.scale("default", "inflate", LEAST + 1)
    world.run_until_idle(limit=LIMIT)
    assert len(world.pods(phase="Running")) == LEAST + 1
    watched.begin()
    world.store.delete(world.store.kind("karpenter.sh/v1", "NodeClaim"), world.claims()[0]["metadata"]["name"])
    world.run_until_idle(limit=LIMIT)
    assert watched.end() >= LEAST
    nothing_is_left_over(world, pods=LEAST + 1)
    world.scale("default", "inflate", 0)
    world.run_until_idle(limit=LIMIT)
    nothing_is_left_over(world, pods=0)


def nothing_is_left_over(world: World, *, pods: int) -> None:
    assert len(world.pods(phase="Running")) == pods
    held = sorted(c["status"]["providerID"].rsplit("/", 1)[-1] for c in world.claims())
    assert held == sorted(i.id for i in world.instances())
    assert sorted(c["status"]["nodeName"] for c in world.claims()) == sorted(
        n["metadata"]["name"] for n in world.nodes()
    )
    if not pods:
        assert held == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "must_be_cut"),
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
def test_a_function_that_dies_between_any_two_of_its_calls_leaves_nothing_behind_and_no_budget_broken(
    spot_default: World, function: str, must_be_cut: set[str]
) -> None:
    world = spot_default
    world.apply(BUDGET)
    watched = Watched(world)
    cuts = world.faults.crash_around_each_write(function)
    wanted = {(call, when) for call in must_be_cut for when in ("before", "after")}
    for _ in range(3):
        a_life(world, watched)
        if wanted <= cuts.tried and not cuts.remaining:
            break
    assert wanted <= cuts.tried
    assert not cuts.remaining
