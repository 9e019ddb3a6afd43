"""Schemas of `--json`: every command has one, and none changes without another version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import typer.main
from jsonschema import Draft202012Validator

from cli.json_output import VERSIONS, WITHOUT_VERSION
from cli.main import app
from cli.schema import schemas
from tests.unit.json_output import snapshots

if TYPE_CHECKING:
    from collections.abc import Iterator


def commands_with_json() -> Iterator[str]:
    """Every command with --json, as it is typed."""
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined] # a group
        inner = getattr(command, "commands", {"": command})
        for word, leaf in inner.items():
            if any("--json" in parameter.opts for parameter in leaf.params):
                yield f"{name} {word}".strip()


def test_every_command_with_json_has_a_schema() -> None:
    assert sorted(commands_with_json()) == sorted(VERSIONS)


@pytest.mark.parametrize("command", VERSIONS)
def test_a_schema_is_valid_and_names_its_version(command: str) -> None:
    schema = schemas.schema(command)
    Draft202012Validator.check_schema(schema)
    assert schema["$id"].endswith(f"/v{VERSIONS[command]}.json")
    if command not in schemas.LISTS | WITHOUT_VERSION:
        assert f"'const': {VERSIONS[command]}" in str(schema["$defs"])


@pytest.mark.parametrize("command", VERSIONS)
def test_a_changed_schema_has_another_version(command: str) -> None:
    file = snapshots.path(command)
    assert file.exists(), "run python -m tests.unit.json_output.snapshots"
    assert snapshots.text(command) == file.read_text(encoding="utf-8"), (
        f"the output of tenon {command} --json changed: raise its version in cli/json_output.py, "
        "then run python -m tests.unit.json_output.snapshots"
    )


def test_there_are_no_snapshots_of_former_versions() -> None:
    assert set(snapshots.FOLDER.glob("*.json")) == {snapshots.path(command) for command in VERSIONS}
