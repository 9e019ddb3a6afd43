from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from local.world import World
from tests.e2e.chromium import CHROMIUM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser

MANIFESTS = Path(__file__).parent.parent.parent / "cli" / "demo" / "manifests"
CLUSTER = "demo"


def _load(name: str) -> list[dict[str, Any]]:
    """The objects of a manifest that comes with Tenon, for the tests' cluster."""
    text = (MANIFESTS / name).read_text().replace("CLUSTER", CLUSTER)
    return [doc for doc in yaml.safe_load_all(text) if doc]


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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 (only where there is a browser)

    with sync_playwright() as playwright:
        # root in a container has no user namespaces to make a sandbox of
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()
