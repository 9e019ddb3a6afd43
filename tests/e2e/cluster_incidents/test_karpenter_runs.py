"""Karpenter still runs in the cluster: Tenon pauses itself, says why, and begins once Karpenter has stopped."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.kubernetes import kinds
from shared.cluster.lease import micro_time
from tests.e2e.interruptions.environment import deployment, fill, small_nodes
from tests.e2e.world_state import events

if TYPE_CHECKING:
    from local.world import World

MINUTE = timedelta(minutes=1)
LEASE = "karpenter-leader-election"


def renew_lease(world: World, namespace: str = "kube-system") -> None:
    """Renew the Lease as Karpenter's leader does."""
    spec = {"holderIdentity": "karpenter-5f6c_1", "renewTime": micro_time(world.clock.now())}
    if world.store.find(kinds.LEASES, LEASE, namespace=namespace) is None:
        world.store.create(kinds.LEASES, {"metadata": {"name": LEASE}, "spec": spec}, namespace=namespace)
    else:
        world.store.patch(kinds.LEASES, LEASE, {"spec": spec}, namespace=namespace)


def karpenter_runs(world: World, minutes: int, namespace: str) -> None:
    """Let its leader renew the Lease for that long; every 20 seconds are enough."""
    for _ in range(3 * minutes):
        renew_lease(world, namespace)
        world.run_for(timedelta(seconds=20))


@pytest.mark.parametrize("namespace", ["kube-system", "karpenter"])
def test_nothing_is_launched_or_removed_until_it_stops(world: World, namespace: str) -> None:
    if namespace != "kube-system":
        world.store.create(kinds.NAMESPACES, {"metadata": {"name": namespace}})
    small_nodes(world)
    world.apply([deployment("web", 4)])
    fill(world, 4)
    karpenter_runs(world, 2, namespace)
    instances = {i.id for i in world.instances()}
    world.scale("default", "web", 8)
    karpenter_runs(world, 10, namespace)
    assert {i.id for i in world.instances()} == instances
    assert not any(c["metadata"].get("deletionTimestamp") for c in world.claims())
    assert any(f"karpenter-5f6c_1 holds Lease {namespace}/{LEASE}" in e["message"] for e in events(world))
    # The pause is renewed each minute, which is no news.
    assert len(events(world, "Paused", kind="NodePool")) == 1
    world.run_until(lambda: len(world.pods(phase="Running")) == 8, limit=8 * MINUTE)
    assert world.failures() == []
