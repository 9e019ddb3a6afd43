"""Keys typed on a terminal, by termios and select: the standard library has all that a live view needs.

The terminal doesn't echo and gives each key at once while the keyboard is open. Ctrl-C stays a signal.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import select
import sys
import termios
import tty
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

UP, DOWN, PAGE_UP, PAGE_DOWN, HOME, END = "up", "down", "page up", "page down", "home", "end"
ENTER, ESCAPE, BACKSPACE, CLEAR = "enter", "escape", "backspace", "clear"
_SEQUENCES = {
    "[A": UP, "OA": UP, "[B": DOWN, "OB": DOWN, "[5~": PAGE_UP, "[6~": PAGE_DOWN,
    "[H": HOME, "OH": HOME, "[1~": HOME, "[7~": HOME, "[F": END, "OF": END, "[4~": END, "[8~": END,
}  # fmt: skip
"""By what follows Escape, as xterm, VT220 and rxvt send it."""
_CONTROLS = {"\r": ENTER, "\n": ENTER, "\x7f": BACKSPACE, "\x08": BACKSPACE, "\x15": CLEAR}
_TOKEN = re.compile(r"\x1b(?P<sequence>\[[0-9;]*[A-Za-z~]|O[A-Z])|(?P<character>.)", re.DOTALL)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;]*|O)?\Z")
_REST_OF_SEQUENCE = 0.05
"""Seconds in which the rest of a key's sequence arrives; after them an Escape is the key itself."""
_READ_SIZE = 1024


class Keyboard:
    """The keys of a terminal's file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self, timeout: float) -> list[str]:
        """The keys typed until now; waits that many seconds for the first. Characters are themselves.

        Raises:
            EOFError: the terminal is gone.
        """
        text = self._text(timeout)
        while text and _UNFINISHED.search(text) and (rest := self._text(_REST_OF_SEQUENCE)):
            text += rest
        return list(keys(text))

    def _text(self, timeout: float) -> str:
        if not select.select([self._descriptor], [], [], timeout)[0]:
            return ""
        data = os.read(self._descriptor, _READ_SIZE)
        if not data:
            raise EOFError
        return self._decoder.decode(data)


def keys(text: str) -> Iterator[str]:
    """The keys of what a terminal sends; sequences of other keys are left out."""
    for token in _TOKEN.finditer(text):
        character = token["character"]
        if character is None:
            if token["sequence"] in _SEQUENCES:
                yield _SEQUENCES[token["sequence"]]
        elif character in _CONTROLS:
            yield _CONTROLS[character]
        elif character == "\x1b":
            yield ESCAPE
        elif character.isprintable():
            yield character


@contextlib.contextmanager
def opened() -> Iterator[Keyboard | None]:
    """The keyboard of standard input; None if that isn't a terminal."""
    if not sys.stdin.isatty():
        yield None
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield Keyboard(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
