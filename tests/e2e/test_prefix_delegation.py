"""Nodes run as many pods as the VPC CNI has addresses for, by the settings of its own DaemonSet."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from local.world import World, sample_objects
from shared.api import labels as names

LIMIT = timedelta(minutes=10)
FAMILIES = {"al2023": "al2023@latest", "bottlerocket": "bottlerocket@latest"}


def aws_node(*, prefixes: bool) -> dict[str, Any]:
    daemon_set = sample_objects.daemon_set("aws-node", {"cpu": "25m"})
    daemon_set["metadata"]["namespace"] = "kube-system"
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    env = [{"name": "ENABLE_PREFIX_DELEGATION", "value": str(prefixes).lower()}]
    container.update(name="aws-node", env=env)
    return daemon_set


def node_objects(world: World, family: str, alias: str) -> list[dict[str, Any]]:
    node_class = sample_objects.node_class(world, amiSelectorTerms=[{"alias": alias}])
    node_class["metadata"]["name"] = family
    requirements = {names.INSTANCE_TYPE: ["m5.large"], names.CAPACITY_TYPE: ["on-demand"]}
    pool = sample_objects.node_pool(requirements, name=family)
    pool["spec"]["template"]["spec"]["nodeClassRef"]["name"] = family
    return [node_class, pool]


def small_pods(family: str, replicas: int) -> dict[str, Any]:
    selector = {names.NODEPOOL: family}
    return sample_objects.deployment(family, replicas, {"cpu": "10m", "memory": "10Mi"}, nodeSelector=selector)


def pods_by_pool(world: World) -> dict[str, list[int]]:
    """By NodePool: how many pods its nodes run at most, as their kubelets say."""
    return {
        family: sorted(int(n["status"]["capacity"]["pods"]) for n in world.nodes(family))
        for family in FAMILIES
    }  # fmt: skip


@pytest.mark.flow
def test_small_nodes_run_more_pods_with_prefix_delegation_and_none_drifts_when_it_ends() -> None:
    with World(cluster="demo") as world:
        world.apply([aws_node(prefixes=True)])
        for family, alias in FAMILIES.items():
            world.apply([*node_objects(world, family, alias), small_pods(family, 60)])
        world.run_until(lambda: len(world.pods(phase="Running")) >= 120 + len(world.nodes()), limit=LIMIT)
        assert pods_by_pool(world) == {"al2023": [110], "bottlerocket": [110]}
        planned = {c["status"]["capacity"]["pods"] for c in world.claims()}
        assert planned == {"110"}

        before = {n["metadata"]["name"] for n in world.nodes()}
        world.apply([aws_node(prefixes=False)])
        world.run_for(timedelta(minutes=10))
        assert {n["metadata"]["name"] for n in world.nodes()} == before

        world.apply([small_pods("al2023", 130)])
        world.run_until(lambda: len(world.nodes("al2023")) == 2, limit=LIMIT)
        assert pods_by_pool(world)["al2023"] == [29, 110]
        assert world.failures() == []
