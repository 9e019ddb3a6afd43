from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from local.world import World
from shared.base import runtime
from tests.integration.cli.command import CommandResult, call

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLUSTER = "demo"


@dataclass(frozen=True)
class Shell:
    """A local cluster, and the command line with a kubeconfig for it."""

    world: World
    kubeconfig: Path

    def tenon(self, *arguments: str) -> CommandResult:
        in_shell = runtime.Runtime(environ=os.environ, now=self.world.clock.now, sleep=self.world.clock.sleep)
        with runtime.using(in_shell):
            return call(*arguments, "--cluster", CLUSTER, env={"KUBECONFIG": str(self.kubeconfig)})


@contextlib.contextmanager
def shell_in(folder: Path) -> Iterator[Shell]:
    """A cluster with Tenon, and a kubeconfig for it in the folder."""
    with World(cluster=CLUSTER) as world:
        path = folder / "kubeconfig"
        path.write_text(world.kubectl_config())
        yield Shell(world, path)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A cluster with Tenon, and a kubeconfig for it."""
    with shell_in(tmp_path) as opened:
        yield opened
