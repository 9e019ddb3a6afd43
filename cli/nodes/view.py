"""The part of the node table that a terminal shows: which row is the first, and which text filters the rows.

A view is a value: a key makes another one. The totals stay on screen; rows below them scroll.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.text import Text

from cli import terminal
from cli.nodes import keyboard, table
from shared.base.struct import Struct, with_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

    from cli.nodes.rows import NodeRows, Row
    from cli.nodes.selection import Selection

_HEADER_LINES = 2
"""The table's header, and the line that names columns without room."""
_KEYS = "↑ ↓ PgUp PgDn Home End · / filter · q quit"


class View(Struct, kw_only=True):
    """``top`` is the index of the first shown row, ``text`` the filter. ``typing``: keys are part of the text."""

    top: int = 0
    text: str = ""
    typing: bool = False
    closed: bool = False

    def after(self, key: str, *, page: int, count: int) -> View:
        """The view after a key; ``page`` is the number of rows on screen, ``count`` that of selected rows."""
        if self.typing:
            return self._after_typing(key)
        last = max(0, count - page)
        top = min(self.top, last)
        match key:
            case "q" | "Q":
                return with_fields(self, closed=True)
            case "/":
                return with_fields(self, typing=True)
            case keyboard.ESCAPE:
                return with_fields(self, text="", top=0)
        moved = {
            keyboard.UP: top - 1, "k": top - 1, keyboard.DOWN: top + 1, "j": top + 1,
            keyboard.PAGE_UP: top - page, keyboard.PAGE_DOWN: top + page, keyboard.HOME: 0, keyboard.END: last,
        }.get(key, top)  # fmt: skip
        return with_fields(self, top=min(max(0, moved), last))

    def _after_typing(self, key: str) -> View:
        match key:
            case keyboard.ENTER:
                return with_fields(self, typing=False)
            case keyboard.ESCAPE:
                return with_fields(self, typing=False, text="", top=0)
            case keyboard.BACKSPACE:
                return with_fields(self, text=self.text[:-1], top=0)
            case keyboard.CLEAR:
                return with_fields(self, text="", top=0)
        return with_fields(self, text=self.text + key, top=0) if len(key) == 1 else self


class Frame(Struct, kw_only=True):
    """The lines of a screen. ``page`` is the number of rows that it has room for, ``count`` that of selected rows."""

    lines: Sequence[Sequence[Segment]]
    page: int
    count: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines as they are."""
        _ = console, options
        for line in self.lines:
            yield from line
            yield Segment.line()


def frame(
    console: Console,
    rows: NodeRows,
    selection: Selection,
    view: View,
    *,
    name: str,
    pauses: Sequence[str] = (),
    error: str = "",
    keys: bool = True,
) -> Frame:
    """The screen: totals, the rows from the view's first, and a line on position and keys at the bottom.

    Only rows that are on screen are rendered, so a frame of 1,000 nodes costs as much as of 30. ``error`` says why
    the rows aren't current. ``keys``: there is a keyboard.
    """
    selected = selection.with_text(view.text).of(rows)
    options = console.options.reset_height()
    head = console.render_lines(
        table.head(rows, selected, name=name, width=console.width, pauses=pauses), options, pad=False
    )
    # in a low terminal the totals give way, so that at least three rows are shown
    head = head[: max(1, console.height - _HEADER_LINES - 4)]
    page = max(1, console.height - len(head) - _HEADER_LINES - 1 - bool(error))
    top = min(view.top, max(0, len(selected) - page))
    foot = [_footer(view, selected, top, page, keys=keys)]
    if error:
        foot.insert(0, Text(f"  not updated: {error}", style=terminal.BAD, no_wrap=True, overflow="ellipsis"))
    body = console.render_lines(_body(rows, selected, top, page, selection, console.width), options, pad=False)
    space = max(1, console.height - len(head) - len(foot))
    body = [*body[:space], *([[]] * (space - len(body)))]
    last = [line for part in foot for line in console.render_lines(part, options, pad=False)[:1]]
    return Frame(lines=[*head, *body, *last], page=page, count=len(selected))


def _body(
    rows: NodeRows, selected: Sequence[Row], top: int, page: int, selection: Selection, width: int
) -> terminal.FittedTable | Text:
    if not selected:
        return Text("  no nodes", style=terminal.QUIET)
    shown = selected[top : top + page]
    return table.table(rows, shown, width=width, label_columns=selection.label_columns, fitted_to=selected)


def _footer(view: View, selected: Sequence[Row], top: int, page: int, *, keys: bool) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    if view.typing:
        return line.append("  /").append(view.text, "bold").append("▏ Enter keeps, Esc clears", terminal.QUIET)
    last = min(top + page, len(selected))
    line.append(f"  {top + 1 if selected else 0:,}–{last:,} of {len(selected):,}", terminal.QUIET)
    if view.text:
        line.append(" · ", terminal.QUIET).append(f"/{view.text}", "bold").append(", Esc clears", terminal.QUIET)
    return line.append(f" · {_KEYS}", terminal.QUIET) if keys else line
