from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from local.world import Options, World
from tests.e2e.interruptions.environment import small_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def quiet_world() -> Iterator[World]:
    """A cluster with one NodePool of spot nodes with two vCPUs each."""
    with World(cluster="demo") as new_world:
        small_nodes(new_world)
        yield new_world


@pytest.fixture
def world_alone() -> Iterator[World]:
    """The same, with durations measured in processor time, so that other processes don't count."""
    with World(cluster="demo", options=Options(elapsed=time.process_time)) as new_world:
        small_nodes(new_world)
        yield new_world
