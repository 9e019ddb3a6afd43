"""Tables and code as Markdown, and the check that what the code has and what is said of it are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class IncompleteError(RuntimeError):
    """Something in the code has no meaning said here, or the other way round."""


def table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> list[str]:
    """The lines of a table."""
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows),
    ]


def complete(what: str, in_code: set[str], said: set[str]) -> None:
    """See that both are the same.

    Raises:
        IncompleteError: they aren't; the text names what differs.
    """
    missing, stale = sorted(in_code - said), sorted(said - in_code)
    if missing or stale:
        raise IncompleteError(
            f"docs/descriptions.py: {what} without a meaning: {missing}; meaning without one: {stale}"
        )


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
