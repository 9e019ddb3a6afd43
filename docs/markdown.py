"""Markdown tables, and descriptions from docstrings, which are complete."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class IncompleteError(RuntimeError):
    """Something in the code has no description, or a description is unused."""


def table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> list[str]:
    """The lines of a table."""
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows),
    ]


def complete(kind: str, in_code: set[str], described: set[str]) -> None:
    """Check that everything in the code has a description, and nothing else has.

    Raises:
        IncompleteError: they differ; the message names what.
    """
    missing, unused = sorted(in_code - described), sorted(described - in_code)
    if missing or unused:
        raise IncompleteError(f"docs/descriptions.py: {kind} without description: {missing}; unused: {unused}")


def field_docstrings(described: type) -> dict[str, str]:
    """The docstring below each field of a class, as one line.

    Raises:
        IncompleteError: a field has none.
    """
    (definition,) = ast.parse(inspect.getsource(described)).body
    assert isinstance(definition, ast.ClassDef)
    docstrings = {}
    for field, following in pairwise(definition.body):
        if isinstance(field, ast.AnnAssign):
            match following:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    docstrings[ast.unparse(field.target)] = " ".join(text.split())
                case _:
                    raise IncompleteError(f"{described.__name__}.{ast.unparse(field.target)} has no docstring")
    return docstrings


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
