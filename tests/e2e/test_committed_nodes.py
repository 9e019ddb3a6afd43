"""Nodes that Reserved Instances and Savings Plans pay: launched first, no further than they go, and kept."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.world import Options, World, sample_objects
from shared.api import labels as names
from shared.commitments.balance import family_of, normalization_factor
from tests.e2e.cli.conftest import CLUSTER, Shell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from local.aws.purchases import Purchases

MINUTE = timedelta(minutes=1)
CATALOG_INTERVAL = timedelta(minutes=16)
"""After this the catalog function has read the commitments."""
REQUESTS = {"cpu": "1500m", "memory": "3Gi"}
RESERVED = "m5.large"
PAID_UNITS = 8
"""Normalized units of two of them."""
POOL = {names.CAPACITY_TYPE: [names.SPOT, names.ON_DEMAND]}


@pytest.fixture
def open_shell(tmp_path: Path) -> Iterator[Callable[[Callable[[Purchases], object]], Shell]]:
    """A cluster without nodes in an account with these purchases, which are read."""
    with ExitStack() as stack:

        def opened(purchases: Callable[[Purchases], object]) -> Shell:
            options = Options(purchases=purchases, context={"commitments": "on"})
            world = stack.enter_context(World(options=options, cluster=CLUSTER))
            path = tmp_path / "kubeconfig"
            path.write_text(world.kubectl_config())
            world.run_for(CATALOG_INTERVAL)
            return Shell(world, path)

        yield opened


def run(world: World, replicas: int) -> None:
    world.apply([sample_objects.node_class(world), sample_objects.node_pool(POOL)])
    world.apply(sample_objects.deployment("web", replicas, REQUESTS))
    world.run_until(lambda: len(world.pods(phase="Running")) == replicas, limit=6 * MINUTE)


def kinds(world: World) -> list[tuple[str, str]]:
    """Capacity type and instance type of each node."""
    own = [n["metadata"]["labels"] for n in world.nodes()]
    return sorted((labels[names.CAPACITY_TYPE], labels[names.INSTANCE_TYPE]) for labels in own)


def reserved_units(nodes: list[tuple[str, str]]) -> float:
    """The normalized units of the on-demand nodes, all of which are of the reserved family."""
    on_demand = [instance_type for capacity_type, instance_type in nodes if capacity_type == names.ON_DEMAND]
    assert {family_of(instance_type) for instance_type in on_demand} == {family_of(RESERVED)}
    return sum(normalization_factor(instance_type) or 0.0 for instance_type in on_demand)


@pytest.mark.flow
def test_reserved_instances_are_launched_first_and_spot_for_the_rest(
    open_shell: Callable[[Callable[[Purchases], object]], Shell],
) -> None:
    shell = open_shell(lambda purchases: purchases.reserve(RESERVED, 2))
    run(shell.world, 5)
    nodes = kinds(shell.world)
    assert reserved_units(nodes) == PAID_UNITS
    assert {capacity_type for capacity_type, _ in nodes} == {names.ON_DEMAND, names.SPOT}
    shell.world.run_for(20 * MINUTE)
    assert reserved_units(kinds(shell.world)) == PAID_UNITS
    assert "commitments: $0.12 of $0.12 per hour used" in shell.tenon("plan").out


def test_a_spot_node_makes_way_for_an_instance_that_is_bought_later(
    open_shell: Callable[[Callable[[Purchases], object]], Shell],
) -> None:
    shell = open_shell(lambda _: None)
    run(shell.world, 1)
    assert {capacity_type for capacity_type, _ in kinds(shell.world)} == {names.SPOT}
    shell.world.aws.purchases.commit(1.0)
    shell.world.run_until(
        lambda: (
            {capacity_type for capacity_type, _ in kinds(shell.world)} == {names.ON_DEMAND}
            and len(shell.world.pods(phase="Running")) == 1
        ),
        limit=timedelta(hours=3),
    )
    assert "of $1.00 per hour used" in shell.tenon("plan").out


def test_without_purchases_spot_is_launched(open_shell: Callable[[Callable[[Purchases], object]], Shell]) -> None:
    shell = open_shell(lambda _: None)
    run(shell.world, 3)
    assert {capacity_type for capacity_type, _ in kinds(shell.world)} == {names.SPOT}
    assert "commitments" not in shell.tenon("plan").out
