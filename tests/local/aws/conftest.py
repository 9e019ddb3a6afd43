from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING

import pytest

from local.aws.cloud import Cloud
from local.clock import Clock
from tests.local.aws.environment import START, Environment, Probe
from tests.local.aws.worker_groups import Groups

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def env(tmp_path: Path) -> Iterator[Environment]:
    clock, probe = Clock(START), Probe()
    module = types.ModuleType("tenon_probe")
    module.handle = probe.handle  # type: ignore[attr-defined]  # a module made here
    sys.modules["tenon_probe"] = module
    try:
        with Cloud(now=clock.now, sleep=clock.sleep) as cloud:
            yield Environment(cloud=cloud, clock=clock, probe=probe, folder=tmp_path)
    finally:
        del sys.modules["tenon_probe"]


@pytest.fixture
def groups(env: Environment) -> Groups:
    return Groups(env)
