from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from local.world import World
from shared import runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CLUSTER = "demo"


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:  # noqa: ANN401 (whatever the command prints)
        return json.loads(self.out)


def call(*arguments: str, env: dict[str, str] | None = None) -> Said:
    """Call `tenon` as a user would; a fault of ours is raised."""
    done = CliRunner().invoke(app, list(arguments), env=env)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Said(done.exit_code, done.stdout, done.stderr)


@pytest.fixture
def tenon() -> Callable[..., Said]:
    """`tenon …`."""
    return call


@dataclass(frozen=True)
class Desk:
    """An operator's desk: a world, and the command line with a kubeconfig for it."""

    world: World
    kubeconfig: Path

    def tenon(self, *arguments: str) -> Said:
        at_desk = runtime.Runtime(environ=os.environ, now=self.world.clock.now, sleep=self.world.clock.sleep)
        with runtime.using(at_desk):
            return call(*arguments, "--cluster", CLUSTER, env={"KUBECONFIG": str(self.kubeconfig)})


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A cluster with Tenon in it, and an operator's kubeconfig for it."""
    with World(cluster=CLUSTER) as world:
        path = tmp_path / "kubeconfig"
        path.write_text(world.kubectl_config())
        yield Desk(world, path)
