"""`tenon … --help` fits the terminal, shows words instead of Python's types, and leaves examples in one piece."""

from __future__ import annotations

import re

import pytest
import typer

from cli.main import app
from tests.integration.cli.command import call

PYTHON_TYPES = re.compile(r"<(bool|str|int|float|path|list)\b|\[\[|\{\w+\}|Path\]")


def _commands() -> list[tuple[str, ...]]:
    group = typer.main.get_command(app)
    names: list[tuple[str, ...]] = [()]
    for name, command in group.commands.items():  # type: ignore[attr-defined] # typer's own click
        names += [(name,), *((name, child) for child in getattr(command, "commands", ()))]
    return names


COMMANDS = _commands()


@pytest.mark.parametrize("width", ["80", "100"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: " ".join(c) or "tenon")
def test_help(command: tuple[str, ...], width: str) -> None:
    done = call(*command, "--help", env={"COLUMNS": width})
    assert done.code == 0
    assert PYTHON_TYPES.search(done.out) is None
    assert max(len(line) for line in done.lines) <= int(width)
    assert not [line for line in done.lines if line.rstrip().endswith("…")]
    examples = done.out.partition("For example:")[2].partition("╭")[0]
    for line in filter(None, (line.rstrip() for line in examples.splitlines())):
        assert line.startswith(("   tenon ", "   kubectl ", " From files:")), line


def test_every_command_that_people_run_has_an_example() -> None:
    groups = {(), ("migrate",), ("shadow",)}
    missing = [c for c in COMMANDS if c not in groups and "For example:" not in call(*c, "--help").out]
    assert missing == []


def test_a_flag_has_no_value_and_a_value_has_a_word() -> None:
    text = call("nodes", "--help", env={"COLUMNS": "100"}).out
    assert re.search(r"--once +Print the table once", text)
    assert re.search(r"--sort-by,--sort +COLUMN +Sort by", text)
    assert "Usage: tenon simulate [OPTIONS] FILE..." in call("simulate", "--help").out.replace("root", "tenon")
    assert "[OPTIONS] KIND [NAME]" in call("explain", "--help").out
