"""A zone whose subnet has hardly any address left isn't tried, as long as another zone will do."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.aws import backends
from local.world import World, sample_objects
from shared.api import labels as names
from tests.e2e.cli.conftest import CLUSTER, Shell
from tests.e2e.world_state import events

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MINUTE = timedelta(minutes=1)
REQUESTS = {"cpu": "1500m", "memory": "900Mi"}
POOL = {"karpenter.sh/capacity-type": ["spot"], "karpenter.k8s.aws/instance-cpu": ["2"]}


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """One pod on a node of two CPUs, in the cheapest zone."""
    with World(cluster=CLUSTER) as world:
        path = tmp_path / "kubeconfig"
        path.write_text(world.kubectl_config())
        web = sample_objects.deployment("web", 1, REQUESTS)
        world.apply([sample_objects.node_class(world), sample_objects.node_pool(POOL), web])
        world.run_until(lambda: len(world.pods(phase="Running")) == 1, limit=5 * MINUTE)
        yield Shell(world, path)


@contextlib.contextmanager
def full(world: World, zone: str, *, free: int) -> Iterator[str]:
    """While entered, that many addresses are free in the zone's subnet; its id."""
    account = world.aws.account
    subnet = backends.ec2(account.region).get_subnet(account.subnets[zone])
    taken = subnet._available_ip_addresses - subnet.available_ip_address_count
    with backends.replaced(subnet, "_available_ip_addresses", free + taken):
        yield str(subnet.id)


def cheapest_zone(world: World) -> str:
    (node,) = world.nodes()
    return str(node["metadata"]["labels"][names.ZONE])


def new_zones(world: World, replicas: int) -> list[str]:
    """The zones of the nodes that are launched for that many replicas, without those of before."""
    before = {n["metadata"]["name"] for n in world.nodes()}
    world.scale("default", "web", replicas)
    world.run_until(lambda: len(world.pods(phase="Running")) == replicas, limit=5 * MINUTE)
    return [n["metadata"]["labels"][names.ZONE] for n in world.nodes() if n["metadata"]["name"] not in before]


@pytest.mark.flow
def test_nodes_are_launched_in_another_zone_without_a_failed_call(shell: Shell) -> None:
    world = shell.world
    zone = cheapest_zone(world)
    with full(world, zone, free=3) as subnet:
        world.run_for(2 * MINUTE)
        calls = len(world.aws.fleets.calls)
        chosen = new_zones(world, 4)
        assert len(chosen) == 3
        assert zone not in chosen
        assert all(not call.errors for call in world.aws.fleets.calls[calls:])
        few = events(world, "FewFreeAddresses")
        assert any(f"{subnet} in {zone} has 3 free addresses" in e["message"] for e in few)
        assert f"{subnet} in {zone} has 3 free addresses" in shell.tenon("explain", "nodepool", "default").out
    world.run_for(6 * MINUTE)
    assert "free addresses" not in shell.tenon("explain", "nodepool", "default").out
    assert zone in new_zones(world, 6)


def test_pods_that_need_the_zone_are_launched_there_all_the_same(shell: Shell) -> None:
    world = shell.world
    zone = cheapest_zone(world)
    with full(world, zone, free=3) as subnet:
        world.run_for(2 * MINUTE)
        pinned = sample_objects.deployment("pinned", 1, REQUESTS)
        pinned["spec"]["template"]["spec"]["nodeSelector"] = {names.ZONE: zone}
        world.apply(pinned)
        world.run_until(lambda: bool(world.pending()), limit=MINUTE)
        (pod,) = (p["metadata"]["name"] for p in world.pending())
        explained = shell.tenon("explain", "pod", f"default/{pod}").out
        assert f"{subnet} in {zone} has 3 free addresses" in explained
        world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=5 * MINUTE)


def test_if_every_zone_is_short_all_are_offered(shell: Shell) -> None:
    world = shell.world
    with contextlib.ExitStack() as stack:
        for zone in world.aws.account.subnets:
            stack.enter_context(full(world, zone, free=5))
        world.run_for(2 * MINUTE)
        assert len(new_zones(world, 3)) == 2
