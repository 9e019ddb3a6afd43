from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from local.world import World
from shared.base import runtime
from tests.e2e.cli.output_schema import assert_follows_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CLUSTER = "demo"


@dataclass(frozen=True)
class CommandResult:
    """The output and exit code of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:  # noqa: ANN401 (whatever the command prints)
        return json.loads(self.out)


def call(*arguments: str, env: dict[str, str] | None = None) -> CommandResult:
    """Call `tenon` as a user does; exceptions are raised. What --json prints must follow the command's schema."""
    done = CliRunner().invoke(app, list(arguments), env=env)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert_follows_schema(arguments, done.stdout)
    return CommandResult(done.exit_code, done.stdout, done.stderr)


@pytest.fixture
def tenon() -> Callable[..., CommandResult]:
    """`tenon …`."""
    return call


@dataclass(frozen=True)
class Shell:
    """A local cluster, and the command line with a kubeconfig for it."""

    world: World
    kubeconfig: Path

    def tenon(self, *arguments: str) -> CommandResult:
        in_shell = runtime.Runtime(environ=os.environ, now=self.world.clock.now, sleep=self.world.clock.sleep)
        with runtime.using(in_shell):
            return call(*arguments, "--cluster", CLUSTER, env={"KUBECONFIG": str(self.kubeconfig)})


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A cluster with Tenon, and a kubeconfig for it."""
    with World(cluster=CLUSTER) as world:
        path = tmp_path / "kubeconfig"
        path.write_text(world.kubectl_config())
        yield Shell(world, path)
