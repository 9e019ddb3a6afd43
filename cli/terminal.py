"""Terminal output of all commands: the console, tables, and the format of prices, durations and shares.

Colours are only used on a terminal, and never with NO_COLOR.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cli.printable import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import timedelta

    from rich.console import ConsoleOptions, RenderableType, RenderResult
    from rich.segment import Segment

_UNBOUNDED = 10_000
"""Columns of output that goes to a file or a pipe: lines are as long as they are, so that nothing is cut or wrapped."""
_TEXT_WIDTHS = (24, 40)
"""A column of sentences, which are wrapped between words, is as wide as its longest word, but within these widths."""
_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60
_SMALL_AMOUNT = 0.1
GOOD, WARNING, BAD, QUIET = "green", "yellow", "red", "dim"
FILL = "bright_blue"
CAPACITY = {"spot": "cyan", "reserved": "magenta"}


class SafeConsole(Console):
    """Shows texts as they are: nobody's markup, emoji codes or escape sequences count, only styles of ours."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 (as rich has it)
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **options})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments, whose texts are printable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


class _Plain(SafeConsole):
    """For files and pipes: without a width, colours and trailing blanks."""

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401 (as rich has it)
        """Print without trailing blanks."""
        options.setdefault("soft_wrap", True)
        with self.capture() as captured:
            super().print(*objects, **options)
        self.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def console(*, stderr: bool = False, markup: bool = False) -> Console:
    """Standard output, or standard error: as wide as the terminal, or plain in files and pipes.

    ``markup``: only for texts of ours.
    """
    terminal = SafeConsole(stderr=stderr, markup=markup)
    if terminal.is_terminal:
        return terminal
    return _Plain(stderr=stderr, markup=markup, width=_UNBOUNDED, no_color=True)


class FittedTable(Table):
    """A table that leaves out columns rather than break words: the ``optional`` ones in their order, until it fits."""

    optional: tuple[str, ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table, and a line that names the columns that it leaves out."""
        hidden: list[str] = []
        candidates = [name for name in self.optional if any(c.header == name for c in self.columns)]
        fitted = self._without(hidden)
        while candidates and fitted._needed_width(console, options) > options.max_width:  # noqa: SLF001 (a copy of self)
            hidden.append(candidates.pop(0))
            fitted = self._without(hidden)
        yield from Table.__rich_console__(fitted, console, options)
        if hidden:
            yield Text(f"  without {', '.join(hidden)}: too narrow", style=QUIET)

    def _without(self, hidden: Collection[str]) -> FittedTable:
        fitted = copy.copy(self)
        fitted.columns = [copy.copy(column) for column in self.columns if column.header not in hidden]
        for index, column in enumerate(fitted.columns):
            column._index = index  # noqa: SLF001 (rich numbers columns as they are added)
        return fitted

    def _needed_width(self, console: Console, options: ConsoleOptions) -> int:
        """The width at which no word is broken."""
        needed = self._without(())
        least, most = _TEXT_WIDTHS
        for column in needed.columns:
            if not column.no_wrap:
                words = (Measurement.get(console, options, cell).minimum for cell in column.cells)
                column.max_width = min(max(least, *words), most)
        return Measurement.get(console, options.update(width=_UNBOUNDED), needed).maximum


def table(
    *columns: str, right: Iterable[str] = (), text: Iterable[str] = (), optional: Iterable[str] = (), indent: int = 2
) -> FittedTable:
    """A table without lines; the columns in ``right`` are right-aligned.

    ``text`` are columns of sentences, which are wrapped. ``optional`` ones are left out, in their order, where the
    terminal is too narrow.
    """
    grid = FittedTable(box=None, padding=(0, 2, 0, 0), header_style=QUIET, pad_edge=False)
    grid.optional = tuple(optional)
    if indent:
        grid.add_column("", width=indent - 2, no_wrap=True)
    numbers, sentences = set(right), set(text)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in numbers else "left"
        grid.add_column(column, justify=justify, overflow="fold", no_wrap=column not in sentences)
    return grid


def usd(amount: float, *, sign: bool = False, places: int | None = None) -> str:
    """USD per hour: four places below ten cents, else two, unless amounts that are added need the same ``places``."""
    places = places or (4 if 0 < abs(amount) < _SMALL_AMOUNT else 2)
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
