"""`tenon` in a pseudo-terminal: keys are typed, and the screen is read as a person sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from typing import TYPE_CHECKING, Self

from tests.integration.cli.command import CHECKOUT, TENON

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

UP, DOWN, PAGE_UP, PAGE_DOWN, HOME, END, ESCAPE = "\x1b[A", "\x1b[B", "\x1b[5~", "\x1b[6~", "\x1b[H", "\x1bOF", "\x1b"
_FIRST_FRAME = 60.0
_STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_CURSOR_HOME = "\x1b[H"
LEAVE_ALTERNATE_SCREEN, SHOW_CURSOR = "\x1b[?1049l", "\x1b[?25h"


class PseudoTerminal:
    """A process on a terminal of that many columns and lines."""

    def __init__(
        self, *arguments: str, environ: Mapping[str, str], columns: int = 80, lines: int = 24, cwd: Path = CHECKOUT
    ) -> None:
        self._master, slave = pty.openpty()
        self.resize(columns, lines)
        cleared = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}}
        self.process = subprocess.Popen(
            [*TENON, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env=cleared | {"TERM": "xterm-256color", **environ},
            start_new_session=True,
        )
        self._slave = slave
        self.output = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._slave)
        os.close(self._master)

    def resize(self, columns: int, lines: int) -> None:
        """Another size, as if the window were dragged."""
        self._size = (columns, lines)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def echoes(self) -> bool:
        """Whether the terminal shows what is typed, as a shell needs it."""
        return bool(termios.tcgetattr(self._slave)[3] & termios.ECHO)

    def type(self, keys: str) -> None:
        """Type these keys."""
        os.write(self._master, keys.encode())

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def screen(self) -> list[str]:
        """The lines of the screen as last drawn completely."""
        columns, lines = self._size
        shown, _, _ = self.output.partition(LEAVE_ALTERNATE_SCREEN)
        for frame in reversed(shown.split(_CURSOR_HOME)):
            screen = _STYLE.sub("", frame).replace("\r", "").split("\n")
            if len(screen) == lines and len(screen[-1]) >= columns:
                return [line.rstrip() for line in screen]
        return []

    def until(self, holds: Callable[[list[str]], object], *, seconds: float = _FIRST_FRAME) -> list[str]:
        """The first screen on which this holds."""
        deadline = time.monotonic() + seconds
        while not holds(screen := self.screen()):
            if time.monotonic() > deadline:
                raise AssertionError("the screen is:\n" + "\n".join(screen) + f"\n{self.output[-2000:]!r}")
            self._read(0.1)
        return screen

    def ended(self) -> int:
        """The exit code."""
        deadline = time.monotonic() + _FIRST_FRAME
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read(0.1)
        self._read(0.0)
        return self.process.wait(timeout=1)

    def _read(self, seconds: float) -> None:
        while select.select([self._master], [], [], seconds)[0]:
            self.output += os.read(self._master, 65536).decode(errors="replace")
            seconds = 0.0
