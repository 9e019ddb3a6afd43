from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from local.world import World
from local.world.options import Options

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def world() -> Iterator[World]:
    """A cluster whose relay is a function."""
    with World(cluster="demo", options=Options(context={"relay": "function"})) as running_world:
        yield running_world
