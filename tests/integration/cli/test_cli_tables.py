"""Tables leave out columns rather than break words where a terminal is narrow, and nothing in files and pipes."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from rich.console import Console, Group
from rich.padding import Padding
from rich.text import Text

from cli import terminal
from tests.e2e.conftest import MANIFESTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.cli.command import CommandResult

NODE = ("i-0123456789abcdef0", "c7a.48xlarge", "us-east-1a", "on-demand", "ready")
COLUMNS = ("node", "type", "zone", "capacity", "state")


def rendered(width: int, *, optional: tuple[str, ...] = (), text: str = "") -> list[str]:
    columns = (*COLUMNS, "message") if text else COLUMNS
    table = terminal.table(*columns, optional=optional, text=("message",))
    table.add_row("", *NODE, *((text,) if text else ()))
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_columns_are_left_out_in_their_order_until_the_table_fits() -> None:
    assert len(rendered(80, optional=("zone", "capacity"))) == 2
    narrow = rendered(60, optional=("zone", "capacity"))
    assert "us-east-1a" not in narrow[1]
    assert "on-demand" in narrow[1]
    assert narrow[-1] == "  without zone: too narrow"
    assert rendered(50, optional=("zone", "capacity"))[-1] == "  without zone, capacity: too narrow"


@pytest.mark.parametrize("width", range(65, 130, 3))
def test_no_word_is_broken_and_sentences_are_wrapped(width: int) -> None:
    sentence = "no subnet matches spec.subnetSelectorTerms and so nothing can be launched"
    lines = rendered(width, optional=("zone", "capacity", "state"), text=sentence)
    words = {word for line in lines for word in line.split()}
    assert {"i-0123456789abcdef0", "c7a.48xlarge", *sentence.split()} <= words
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("columns", ["40", "80"])
def test_piped_output_is_whole_whatever_the_terminal(
    tenon: Callable[..., CommandResult], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    plan = tenon("plan", "-f", str(MANIFESTS / "v1.yaml"), "-f", str(MANIFESTS / "spot-default.yaml"))
    assert plan.code == 0
    listed = tenon("catalog").lines
    assert "c6gd.12xlarge" in {line.split()[0] for line in listed if line.strip()}
    assert "spot from" in listed[1]
    assert not [line for line in (*plan.lines, *listed) if "…" in line or "too narrow" in line]


def test_sentences_and_names_longer_than_any_terminal_are_one_line_in_files_and_pipes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sentence, name = "a reason of many words " * 30, "n" * 300
    console = terminal.console()
    grid = terminal.table("node", "message", text=("message",), optional=("node",))
    grid.add_row("", name, sentence)
    console.print(grid)
    console.print(Group(Text("title"), grid))
    console.print(Padding(Text(sentence), (0, 0, 0, 2), expand=False))
    lines = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "node message",
        f"{name} {sentence.strip()}",
        "title",
        "node message",
        f"{name} {sentence.strip()}",
        sentence.strip(),
    ]
