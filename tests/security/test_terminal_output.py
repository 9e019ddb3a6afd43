"""Names and messages on a terminal: they move no cursor, set no title, and are no markup of ours."""

from __future__ import annotations

import ast
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from cli import json_output, terminal
from cli.printable import REPLACEMENT, printable
from local.world import sample_objects
from tests.integration.cli.command import call

CLI = Path(__file__).parents[2] / "cli"
ATTACKS = {
    "clears the screen": "web\x1b[2J\x1b[H",
    "sets the title": "web\x1b]0;owned\x07",
    "writes the clipboard": "web\x1b]52;c;cm0gLXJm\x07",
    "a link to another place": "web\x1b]8;;https://example.com\x07",
    "overwrites its line": "bad\rgood",
    "erases what was before it": "bad\b\b\bgood",
    "a control sequence of one character": "web\x9b2J",
    "reversed order": "web\u202egpj.exe",
    "isolated order": "web\u2066abc\u2069",
}
UNPRINTABLE = frozenset("\x07\x08\x0b\x0c\r\x1b\x7f\x9b\u202e\u2066\u2069")
MARKUP = "[bold]x[/bold] [/] [link=https://example.com]y[/link] :warning:"
attacks = pytest.mark.parametrize("text", ATTACKS.values(), ids=ATTACKS)


class Terminal(io.StringIO):
    """A file that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def printed(*objects: Any, is_terminal: bool) -> str:
    file = Terminal()
    options: dict[str, Any] = {"force_terminal": True} if is_terminal else {"no_color": True}
    console = terminal.SafeConsole(file=file, width=100, **options)
    for obj in objects:
        console.print(obj)
    return file.getvalue()


@attacks
@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_console_writes_none_of_it(text: str, is_terminal: bool) -> None:  # noqa: FBT001 (a parameter)
    table = terminal.table("name", "message", text=["message"])
    table.add_row("", text, text)
    shown = printed(text, Text(text, style="bold"), terminal.title(text, text), table, is_terminal=is_terminal)
    without_styles = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert not UNPRINTABLE & set(without_styles)
    assert "web" in shown or "bad" in shown


def test_markup_in_a_message_is_shown_as_it_is() -> None:
    table = terminal.table("message")
    table.add_row("", MARKUP)
    assert printed(MARKUP, table, is_terminal=False).count(MARKUP) == 2


@attacks
def test_nothing_but_printable_text_is_left(text: str) -> None:
    assert REPLACEMENT in printable(text) or "\b" not in text
    assert not UNPRINTABLE & set(printable(text))
    assert printable("a\tb\nc – Ünïcode") == "a\tb\nc – Ünïcode"


@pytest.fixture
def hostile_file(tmp_path: Path) -> Path:
    """Objects that no API server has validated."""
    path = tmp_path / "cluster.json"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": ATTACKS["clears the screen"], "namespace": ATTACKS["sets the title"]},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
    }
    deployment = sample_objects.deployment(MARKUP, 2, {"cpu": "1000"})
    unknown = {"apiVersion": "v1", "kind": ATTACKS["overwrites its line"], "metadata": {"name": "x"}}
    path.write_text(json.dumps({"kind": "List", "items": [pod, deployment, unknown]}))
    return path


@pytest.mark.parametrize("command", [["plan", "--file"], ["simulate"], ["plan", "--json", "--file"]])
def test_a_file_with_escape_sequences_in_names_is_shown_without_them(command: list[str], hostile_file: Path) -> None:
    done = call(*command, str(hostile_file))
    assert not UNPRINTABLE & set(done.out + done.err)


def test_an_error_message_has_none_either(tmp_path: Path) -> None:
    done = call("plan", "--file", str(tmp_path / ATTACKS["clears the screen"]))
    assert done.code == 2
    assert not UNPRINTABLE & set(done.err)


def test_json_has_them_escaped_and_is_the_same_value() -> None:
    text = json_output.text("nodes", {"name": "".join(ATTACKS.values()) + "\x7f"})
    assert not UNPRINTABLE & set(text)
    assert json.loads(text)["name"] == "".join(ATTACKS.values()) + "\x7f"


def test_commands_print_by_these_two_doors_only() -> None:
    """A console of rich's own, or ``typer.echo``, would print what is above."""
    direct = [
        f"{path.relative_to(CLI)}:{node.lineno}: {ast.unparse(node.func)}"
        for path in CLI.rglob("*.py")
        if path.name not in ("printable.py", "terminal.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("typer.echo", "typer.secho", "Console", "click.echo")
    ]
    assert direct == []
