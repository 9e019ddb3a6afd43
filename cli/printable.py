"""Texts of others, as a terminal may have them: names and messages never move its cursor, nor set its title.

Files aren't validated by an API server, and the messages of events and conditions may have any character. A terminal
obeys escape sequences, and shows text between bidirectional overrides in another order than it has.
"""

from __future__ import annotations

import re

import typer

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_UNPRINTABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and line feed: ESC, BEL, carriage return, CSI
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"  # directions of text, and line separators
)


def printable(text: str) -> str:
    r"""The text with a replacement for each character that a terminal would obey rather than show.

    >>> printable("web-\x1b[2J1")
    'web-\ufffd[2J1'
    """
    return _UNPRINTABLE.sub(REPLACEMENT, text)


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text on standard output, or standard error: the door of all that commands print without a console."""
    typer.echo(printable(text), err=err, nl=nl)
