"""`tenon` in this process, as the tests of commands call it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from cli.main import app
from tests.integration.cli.output_schema import assert_follows_schema

CHECKOUT = Path(__file__).parents[3]
TENON = [sys.executable, "-c", "import sys; sys.argv[0] = 'tenon'; from cli.main import run; run()"]
"""`tenon` in another process, whose working directory is the checkout."""


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
    def json(self) -> Any:
        return json.loads(self.out)


def call(*arguments: str, env: dict[str, str] | None = None) -> CommandResult:
    """Call `tenon` as a user does; exceptions are raised. What --json prints must follow the command's schema."""
    done = CliRunner().invoke(app, list(arguments), env=env)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert_follows_schema(arguments, done.stdout)
    return CommandResult(done.exit_code, done.stdout, done.stderr)
