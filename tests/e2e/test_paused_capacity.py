"""While a cluster is paused, capacity of any kind stays as it is, whatever the functions die of."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.world import Options, sample_objects
from tests.e2e.interruptions.environment import deployment, fill
from tests.e2e.node_groups import LARGE, options, scaling, sizes, two_nodes
from tests.e2e.test_capacity_buffers import buffer, pod_template
from tests.e2e.test_node_group_scale_down import only_group
from tests.e2e.test_pause import POOL, open_shell, standing
from tests.e2e.world_state import running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.cli.conftest import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A cluster with a NodePool of small nodes that removes empty nodes."""
    with open_shell(tmp_path, Options()) as opened:
        yield opened


def test_node_groups_neither_grow_nor_shrink(tmp_path: Path) -> None:
    with open_shell(tmp_path, scaling()) as shell:
        world = shell.world
        world.store.delete(world.store.kind(*POOL), "default")
        quick = {"scale-down-unneeded-time": "1m", "scale-down-delay-after-add": "1m"}
        world.apply(options(quick))
        full, underused = two_nodes(world)
        group = only_group()
        shell.tenon("pause", "demo")
        world.apply(sample_objects.deployment("later", 2, LARGE))
        world.run_for(timedelta(minutes=20))
        assert standing(world) == {full, underused}
        assert sizes(group)[1] == 2
        world.scale("default", "later", 0)
        shell.tenon("resume", "demo")
        world.run_until(lambda: standing(world) == {full}, limit=timedelta(minutes=10))


def test_buffers_are_not_filled(shell: Shell) -> None:
    world = shell.world
    world.apply([deployment("web", 1)])
    fill(world, 1)
    before = len(world.claims())
    shell.tenon("pause", "demo")
    world.apply([pod_template(), buffer(podTemplateRef={"name": "web"}, replicas=20)])
    world.run_for(timedelta(minutes=10))
    assert len(world.claims()) == before
    shell.tenon("resume", "demo")
    world.run_until(lambda: len(world.claims()) > before, limit=timedelta(minutes=5))


def test_standby_nodes_are_neither_bought_nor_started(tmp_path: Path) -> None:
    with open_shell(tmp_path, Options(context={"standby": "on"})) as shell:
        world = shell.world
        shell.tenon("pause", "demo")
        types = {"node.kubernetes.io/instance-type": ["m5.large"], "karpenter.sh/capacity-type": ["on-demand"]}
        world.apply([sample_objects.node_pool(types, annotations={"tenon.sh/standby": "2 m5.large"})])
        world.run_for(timedelta(minutes=10))
        assert world.claims() == []
        shell.tenon("resume", "demo")
        world.run_until(lambda: len(world.claims()) == 2, limit=timedelta(minutes=10))


@pytest.mark.parametrize("function", ["provisioner", "disruption"])
def test_functions_that_die_while_the_cluster_is_paused_remove_and_launch_nothing(shell: Shell, function: str) -> None:
    world = shell.world
    world.apply([deployment("web", 6)])
    fill(world, 6)
    before = {i.id for i in world.instances()}
    shell.tenon("pause", "demo")
    crashes = world.faults.crash_around_each_write(function)
    world.scale("default", "web", 1)
    world.apply([sample_objects.deployment("big", 4, {"cpu": "1500m"})])
    world.run_for(timedelta(minutes=10))
    assert crashes.tried
    assert {i.id for i in world.instances()} == before
    assert not any(c["metadata"].get("deletionTimestamp") for c in world.claims())
    world.faults.clear()
    shell.tenon("resume", "demo")
    world.run_until(lambda: len(running(world)) == 5, limit=timedelta(minutes=15))
