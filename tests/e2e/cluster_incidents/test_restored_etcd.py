"""etcd is restored from a backup: objects and resourceVersions are those of an hour ago, instances those of today."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.controllers.node_lifecycle import RENEWED_CONTINUOUSLY
from local.world.control_plane import EmbeddedControlPlane
from tests.e2e.interruptions.environment import deployment, fill, instance_of, small_nodes

if TYPE_CHECKING:
    from local.world import World

MINUTE = timedelta(minutes=1)


def instances(world: World) -> set[str]:
    return {i.id for i in world.instances()}


def test_nodes_that_still_run_are_kept_and_all_else_is_cleaned_up(world: World) -> None:
    assert isinstance(world.control_plane, EmbeddedControlPlane)
    small_nodes(world)
    world.apply([deployment("web", 8)])
    fill(world, 8)
    world.run_for(2 * MINUTE)
    backup = world.store.backup()
    gone = world.nodes()[0]["metadata"]["name"]
    kept = instances(world) - {instance_of(world, gone)}
    world.store.delete(kinds.NODES, gone)
    world.scale("default", "web", 12)
    world.run_until(lambda: gone not in {n["metadata"]["name"] for n in world.nodes()}, limit=10 * MINUTE)
    world.run_until(lambda: len(world.pods(phase="Running")) == 12, limit=10 * MINUTE)
    world.run_for(5 * MINUTE)
    assert len(instances(world)) == 6

    version = world.store.version
    world.control_plane.restore(backup)
    assert world.store.version < version
    # Its kubelet has renewed the lease for the last time before the backup.
    lease = {"metadata": {"annotations": {RENEWED_CONTINUOUSLY: None}}}
    world.store.patch(kinds.LEASES, gone, lease, namespace="kube-node-lease")
    pods = {p["metadata"]["uid"] for p in world.pods(phase="Running") if p["spec"]["nodeName"] != gone}
    world.run_for(45 * MINUTE)
    assert kept <= instances(world)
    assert len(instances(world)) == len(world.nodes()) == len(world.claims()) == 4
    assert gone not in {n["metadata"]["name"] for n in world.nodes()}
    running = {p["metadata"]["uid"] for p in world.pods(phase="Running")}
    assert len(running) == 8
    assert pods <= running
    assert world.failures() == []
    assert world.dead_letters() == []

    world.scale("default", "web", 10)
    world.run_until(lambda: len(world.pods(phase="Running")) == 10, limit=5 * MINUTE)
