"""``tenon schema``: the JSON schema of a command's ``--json``, or the versions of all."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cli.command_help import examples
from cli.errors import UsageError, errors_as_one_line
from cli.printable import echo


def _complete_command(incomplete: str) -> list[str]:
    from cli.json_output import VERSIONS

    return [name for name in VERSIONS if name.startswith(incomplete)]


@examples("tenon schema", "tenon schema nodes", "tenon schema shadow report")
def schema(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND", help="A command that has --json; default: list all.", autocompletion=_complete_command
        ),
    ] = None,
) -> None:
    """Print the JSON schema of what a command prints with --json.

    Its version is raised with every change; docs/json-output.md has all fields.
    """
    with errors_as_one_line("schema"):
        from cli.json_output import VERSIONS
        from cli.nearest import suggestion

        name = " ".join(command or ())
        if not name:
            for known, version in VERSIONS.items():
                echo(f"{known}: version {version}")
            return
        if name not in VERSIONS:
            raise UsageError(f'no command "{name}" prints JSON{suggestion(name, VERSIONS)}')
        from cli.schema import schemas

        echo(json.dumps(schemas.schema(name), indent=2))
