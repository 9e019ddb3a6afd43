"""``tenon schema``: the JSON schema of a command's ``--json``, or the versions of all."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cli.errors import UsageError, errors_as_one_line


def _complete_command(incomplete: str) -> list[str]:
    from cli.json_output import VERSIONS  # noqa: PLC0415 (slow to import)

    return [name for name in VERSIONS if name.startswith(incomplete)]


def schema(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND",
            help="A command that has --json; default: list all.",
            autocompletion=_complete_command,
        ),
    ] = None,
) -> None:
    """Print the JSON schema of what a command prints with --json.

    Its version is raised with every change; docs/json-output.md has all fields.

    For example:

      tenon schema
      tenon schema nodes
      tenon schema shadow report
    """
    with errors_as_one_line("schema"):
        from cli.json_output import VERSIONS  # noqa: PLC0415 (slow to import)
        from cli.nearest import suggestion  # noqa: PLC0415 (next to its use)

        name = " ".join(command or ())
        if not name:
            for known, version in VERSIONS.items():
                typer.echo(f"{known}: version {version}")
            return
        if name not in VERSIONS:
            raise UsageError(f'no command "{name}" prints JSON{suggestion(name, VERSIONS)}')
        from cli.schema import schemas  # noqa: PLC0415 (slow to import)

        typer.echo(json.dumps(schemas.schema(name), indent=2))
