from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from local.world import World
from local.world.options import Options

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def world() -> Iterator[World]:
    """A cluster that nothing watches: an admission webhook announces its new pods.

    Work takes its processor time, so that seconds don't depend on what else the machine does.
    """
    options = Options(context={"relay": "webhook"}, elapsed=time.process_time)
    with World(cluster="demo", options=options) as running_world:
        yield running_world
