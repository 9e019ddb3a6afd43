"""Options of a node class that decide which machines there are, and how their kubelets are configured."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from moto.ec2.models.instance_types import INSTANCE_TYPES

from local.world import World, sample_objects
from shared.api import labels as names

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = timedelta(minutes=10)


@pytest.fixture
def world() -> Iterator[World]:
    with World(cluster="demo") as world:
        yield world


def types_of_nodes(world: World) -> list[str]:
    return [n["metadata"]["labels"][names.INSTANCE_TYPE] for n in world.nodes()]


def test_pods_of_a_class_with_enclaves_run_on_machines_that_have_them_and_its_nodes_drift_without(world: World) -> None:
    node_class = sample_objects.node_class(world)
    with_enclaves = sample_objects.node_class(world, enclaveOptions={"enabled": True})
    world.apply([node_class, sample_objects.node_pool({}), sample_objects.deployment("web", 1, {"cpu": "500m"})])
    world.run_until(lambda: len(world.pods(phase="Running")) == 1, limit=LIMIT)
    (before,) = types_of_nodes(world)
    assert INSTANCE_TYPES[before]["NitroEnclavesSupport"] == "unsupported"  # the cheapest doesn't have them

    world.apply([with_enclaves])
    world.run_until(lambda: types_of_nodes(world) not in ([], [before]) and len(world.nodes()) == 1, limit=12 * LIMIT)
    (after,) = types_of_nodes(world)
    assert INSTANCE_TYPES[after]["NitroEnclavesSupport"] == "supported"
    assert [i.enclave_enabled for i in world.instances() if i.instance_type == after] == [True]
    assert len(world.pods(phase="Running")) == 1
