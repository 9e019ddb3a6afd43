"""A line on standard error while a command reads or computes, so that a terminal shows a sign of life at once.

It is written before the modules that the command needs are imported, which takes most of its first second. Where
standard error is not a terminal, nothing is written.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ERASE = "\r\x1b[K"


@contextlib.contextmanager
def progress(text: str) -> Iterator[None]:
    """Show the text while entered; it is erased at the end, so the output begins on an empty line."""
    if not sys.stderr.isatty():
        yield
        return
    erase = "\n" if os.environ.get("TERM") == "dumb" else _ERASE
    sys.stderr.write(f"{text} …")
    sys.stderr.flush()
    try:
        yield
    finally:
        sys.stderr.write(erase)
        sys.stderr.flush()
