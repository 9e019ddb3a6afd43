"""Terminal output of all commands: the console, tables, and the format of prices, durations and shares.

Colours are only used on a terminal, and never with NO_COLOR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from rich.console import RenderableType

PLAIN_WIDTH = 160
"""Columns of output that goes to a file or a pipe."""
_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60
_SMALL_AMOUNT = 0.1
GOOD, WARNING, BAD, QUIET = "green", "yellow", "red", "dim"
FILL = "bright_blue"
CAPACITY = {"spot": "cyan", "reserved": "magenta"}


class _Plain(Console):
    """For files and pipes: without trailing blanks."""

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401 (as rich has it)
        """Print without trailing blanks; only tables are fitted to the width."""
        options.setdefault("soft_wrap", not isinstance(objects[0] if objects else "", Table))
        with self.capture() as captured:
            super().print(*objects, **options)
        self.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def console() -> Console:
    """Standard output: as wide as the terminal, or plain and wide in files and pipes."""
    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else _Plain(highlight=False, width=PLAIN_WIDTH, no_color=True)


def table(*columns: str, right: Iterable[str] = (), indent: int = 2) -> Table:
    """A table without lines; the columns in ``right`` are right-aligned."""
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style=QUIET, pad_edge=False)
    if indent:
        grid.add_column("", width=indent - 2, no_wrap=True)
    numbers = set(right)
    for column in columns:
        grid.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return grid


def usd(amount: float, *, sign: bool = False) -> str:
    """USD per hour: four places below ten cents, else two."""
    places = 4 if 0 < abs(amount) < _SMALL_AMOUNT else 2
    text = f"{abs(amount):,.{places}f}"
    prefix = ("+" if amount > 0 else "−" if amount < 0 else "±") if sign else ("−" if amount < 0 else "")
    return f"{prefix}${text}"


def age(span: timedelta) -> str:
    """The duration in at most two units: 45s, 12m, 3h20m, 5d4h."""
    seconds = max(0, int(span.total_seconds()))
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE}m"
    major, major_unit, minor, minor_unit = (_DAY, "d", _HOUR, "h") if seconds >= _DAY else (_HOUR, "h", _MINUTE, "m")
    rest = seconds % major // minor
    return f"{seconds // major}{major_unit}" + (f"{rest}{minor_unit}" if rest else "")


def plural(count: int, noun: str) -> str:
    """``1 node``, ``2 nodes``, ``2 matches``."""
    if count == 1:
        return f"1 {noun}"
    suffix = "es" if noun.endswith(("ch", "s", "x")) else "s"
    return f"{count:,} {noun}{suffix}"


def bar(share: float | None, *, width: int = 10) -> RenderableType:
    """A share as a bar and in percent; red above 1."""
    if share is None:
        return Text("?", style=QUIET)
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=width)
    grid.add_column(width=4, justify="right")
    style = BAD if share > 1 else FILL
    grid.add_row(
        ProgressBar(total=1.0, completed=min(share, 1.0), width=width, complete_style=style, finished_style=style),
        f"{share:.0%}",
    )
    return grid


def capacity(capacity_type: str) -> Text:
    """A capacity type in its colour."""
    return Text(capacity_type, style=CAPACITY.get(capacity_type, ""))


def title(head: str, *rest: str, style: str = "bold") -> Text:
    """The heading of a section, with details after it."""
    return Text.assemble((head, style), *(Text(f" · {part}", style=QUIET) for part in rest if part))
