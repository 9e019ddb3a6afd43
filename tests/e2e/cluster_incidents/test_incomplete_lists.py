"""The API server answers with lists that are empty or lack objects, for minutes: nothing is given up or bought."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.faults import ALWAYS, Fault
from local.kubernetes import kinds
from local.world import sample_objects
from tests.e2e.interruptions.environment import deployment, fill, small_nodes

if TYPE_CHECKING:
    from local.world import World

ALL = ("/nodes", "/nodeclaims", "/nodepools", "/pods")


def cut_lists(world: World, paths: tuple[str, ...], share: float) -> None:
    """Answer Tenon's lists of these kinds with that share of their objects; a list of one name is whole."""
    world.faults.inject(
        lambda point: (
            point.service == "kubernetes"
            and point.operation == "GET"
            and point.target.endswith(paths)
            and point.caller.startswith("tenon")
        ),
        Fault(listed=share),
        times=ALWAYS,
    )


@pytest.mark.parametrize(
    ("paths", "share"),
    [
        (("/nodes",), 0.0),
        (("/nodeclaims",), 0.0),
        (("/nodes", "/nodeclaims"), 0.5),
        (("/nodepools",), 0.0),
        (ALL, 0.0),
        (ALL, 0.5),
    ],
)
def test_no_node_is_given_up_and_none_is_bought(world: World, paths: tuple[str, ...], share: float) -> None:
    small_nodes(world)
    world.apply([deployment("web", 12)])
    fill(world, 12)
    world.run_for(timedelta(minutes=2))
    instances = {i.id for i in world.instances()}
    pods = {p["metadata"]["uid"] for p in world.pods(phase="Running")}
    cut_lists(world, paths, share)
    world.run_for(timedelta(minutes=6))
    world.faults.clear()
    world.run_for(timedelta(minutes=10))
    assert {i.id for i in world.instances()} == instances
    assert len(world.claims()) == 6
    assert {p["metadata"]["uid"] for p in world.pods(phase="Running")} == pods
    # A scheduled sweep that fails is no work that is lost: the next one is a minute later.
    assert {letter.queue for letter in world.dead_letters()} <= {"tenon-demo-undelivered"}
    assert all("IncompleteList" in failure for failure in world.failures())


def test_nodes_arent_empty_because_the_list_of_pods_is(world: World) -> None:
    small_nodes(world)
    world.store.patch(
        world.store.kind("karpenter.sh/v1", "NodePool"),
        "default",
        {"spec": {"disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "10s"}}},
    )
    world.apply([sample_objects.daemon_set("agent", {"cpu": "10m"}), deployment("web", 6)])
    world.run_until(lambda: len(world.pods(phase="Running")) == 6 + len(world.nodes()) > 6)
    world.run_for(timedelta(minutes=2))
    instances = {i.id for i in world.instances()}
    cut_lists(world, ("/pods",), 0.0)
    world.run_for(timedelta(minutes=6))
    assert {i.id for i in world.instances()} == instances
    assert not any(n["spec"].get("unschedulable") or n["metadata"].get("deletionTimestamp") for n in world.nodes())


def test_a_node_that_is_really_gone_ends_its_nodeclaim(world: World) -> None:
    small_nodes(world)
    world.apply([deployment("web", 4)])
    fill(world, 4)
    lost = world.nodes()[0]["metadata"]["name"]
    world.store.patch(kinds.NODES, lost, {"metadata": {"finalizers": None}})
    world.store.delete(kinds.NODES, lost)
    world.run_until(lambda: lost not in {c.get("status", {}).get("nodeName") for c in world.claims()})
    world.run_until(lambda: len(world.pods(phase="Running")) == 4)
    assert world.failures() == []
