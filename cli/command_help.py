"""How ``tenon … --help`` reads: values are named by words in capitals, and flags have none.

Typer prints the types of Python instead (``<list[Path]>``, ``<bool>``), and ``{kind} [name]`` for ``KIND [NAME]``.
Docstrings are wrapped at the width of the source; paragraphs of help are wrapped at the terminal's.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, TypeVar

from typer.core import TyperArgument, TyperCommand, TyperGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

F = TypeVar("F", bound="Callable[..., None]")
Context = Any
"""A context of the click that typer contains, which it doesn't export."""

_BRACES = re.compile(r"[{}]")


def rewrapped(docstring: str) -> str:
    """The paragraphs as single lines; indented lines, such as examples, stay as they are."""
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    return "\n\n".join(p if p.startswith(" ") else " ".join(p.splitlines()) for p in paragraphs)


def examples(*lines: str, title: str = "For example") -> Callable[[F], F]:
    """Decorates a command: its help ends with these command lines."""

    def decorate(command: F) -> F:
        command.__doc__ = "\n  ".join([f"{inspect.getdoc(command)}\n\n{title}:\n", *lines])
        return command

    return decorate


def _with_words(parameters: Sequence[Any]) -> list[Any]:
    """The parameters; their types are shown as their ``metavar``, which arguments have as their names already."""
    for parameter in parameters:
        word = "" if isinstance(parameter, TyperArgument) else parameter.metavar or ""
        parameter.display_type_rich = lambda ctx, word=word: word  # noqa: ARG005 (typer's signature)
    return list(parameters)


class Command(TyperCommand):
    """A command with this help."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 (typer's)
        super().__init__(*arguments, **options)
        self.help = rewrapped(self.help or "")

    def get_params(self, ctx: Context) -> list[Any]:
        """The parameters, as help shows them."""
        return _with_words(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        """The usage line's words, with required arguments bare."""
        return [_BRACES.sub("", piece) for piece in super().collect_usage_pieces(ctx)]


class Group(TyperGroup):
    """A group of commands with this help."""

    def get_params(self, ctx: Context) -> list[Any]:
        """The parameters, as help shows them."""
        return _with_words(super().get_params(ctx))
