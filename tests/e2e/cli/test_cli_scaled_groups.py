"""`tenon plan`, `explain` and `nodes` in a cluster whose node groups are scaled."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.world import World, sample_objects
from tests.e2e.cli.conftest import CLUSTER, Shell
from tests.e2e.node_groups import LARGE, LIMIT, all_run, auto_scaling_group, options, scaling, sizes, two_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MINUTE = timedelta(minutes=1)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A cluster that scales node groups."""
    with World(cluster=CLUSTER, options=scaling()) as world:
        path = tmp_path / "kubeconfig"
        path.write_text(world.kubectl_config())
        yield Shell(world, path)


def test_the_plan_is_what_is_asked_of_groups_and_pools(shell: Shell) -> None:
    world = shell.world
    group = auto_scaling_group(world, "workers")
    world.apply(
        [
            sample_objects.node_class(world),
            sample_objects.node_pool({"node.kubernetes.io/instance-type": ["m5.large", "m5.xlarge"]}),
        ]
    )
    world.apply([options({}, prefer="node-groups"), sample_objects.deployment("job", 0, LARGE)])
    world.run_for(2 * MINUTE)
    plan = shell.tenon("plan", "--what-if", "deployment/job=3", "--json").json
    planned = [claim["nodeGroup"] for claim in plan["launches"]["nodeClaims"]]
    assert planned == [group] * 3
    shown = shell.tenon("plan", "--what-if", "deployment/job=3").out
    assert "nodepool or group" in shown
    assert group in shown
    assert "can grow" in shell.tenon("explain", "nodegroup", group).out
    world.scale("default", "job", 3)
    world.run_until(lambda: sizes(group)[1] == 3, limit=LIMIT)
    coming = [row for row in shell.tenon("nodes", "--json").json["nodes"] if row["nodeGroup"]]
    assert [(row["nodeGroup"], row["nodePool"]) for row in coming] == [(group, "")] * 3
    assert not shell.tenon("plan", "--json").json["launches"]["nodeClaims"], "they are on their way"
    world.run_until(lambda: all_run(world, 3), limit=LIMIT)
    rows = [row for row in shell.tenon("nodes", "--json").json["nodes"] if row["nodeGroup"]]
    assert {(row["nodeGroup"], row["state"], row["price"]) for row in rows} == {(group, "ready", 0.096)}


def test_nodes_that_arent_needed_are_in_the_plan(shell: Shell) -> None:
    world = shell.world
    full, underused = two_nodes(world)
    world.run_for(5 * MINUTE)
    planned = shell.tenon("plan", "--json").json["nodeGroups"]
    (unneeded,) = planned["unneeded"]
    assert unneeded["node"] == underused
    assert 0 < unneeded["removedInSeconds"] < 600
    (kept,) = planned["kept"]
    assert kept["node"] == full
    assert "utilization" in kept["reason"]
    assert f"{underused} of" in shell.tenon("plan").out
    assert "isn't needed" in shell.tenon("explain", "node", underused).out
    states = {row["name"]: row["state"] for row in shell.tenon("nodes", "--json").json["nodes"]}
    assert (states[full], states[underused]) == ("ready", "unneeded")
    assert "utilization" in shell.tenon("explain", "node", full).out
    world.run_until(lambda: underused not in {n["metadata"]["name"] for n in world.nodes()}, limit=LIMIT)
    assert shell.tenon("plan", "--json").json["nodeGroups"]["unneeded"] == []


def test_a_pod_that_no_group_can_run_is_told_why(shell: Shell) -> None:
    world = shell.world
    group = auto_scaling_group(world, "workers", maximum=0)
    world.run_for(MINUTE)
    world.apply(sample_objects.deployment("job", 1, LARGE))
    world.run_for(2 * MINUTE)
    pod = world.pods()[0]["metadata"]["name"]
    explained = shell.tenon("explain", "pod", pod).out
    assert f"node group {group}" in explained
    assert "node-group/" not in explained
    assert "NodePool" not in explained.splitlines()[0]
    assert "is at its maximum size" in shell.tenon("explain", "nodegroup", group).out
    unknown = shell.tenon("explain", "nodegroup", "missing")
    assert (unknown.code, f"there: {group}" in unknown.err) == (2, True)
