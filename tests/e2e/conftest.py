from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from local.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


MANIFESTS = Path(__file__).parent.parent.parent / "cli" / "demo" / "manifests"
CLUSTER = "demo"


def _load(name: str) -> list[dict[str, Any]]:
    """The objects of a manifest that comes with Tenon, for the tests' cluster."""
    text = (MANIFESTS / name).read_text().replace("CLUSTER", CLUSTER)
    return [doc for doc in yaml.safe_load_all(text) if doc]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks every test of this folder, so that ``make test`` leaves out those that are no flows."""
    item.add_marker(pytest.mark.e2e)


@pytest.fixture
def load() -> Callable[[str], list[dict[str, Any]]]:
    """Reads a manifest that comes with Tenon, for the tests' cluster."""
    return _load


@pytest.fixture
def world() -> Iterator[World]:
    """A cluster with Tenon in it; afterwards, no function may have failed in a way that it didn't handle."""
    with World(cluster=CLUSTER) as running_world:
        yield running_world


@pytest.fixture
def spot_default(world: World) -> World:
    """The same, with spot-default.yaml applied."""
    world.apply(_load("spot-default.yaml"))
    return world
