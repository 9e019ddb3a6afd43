"""Rules of options: what a context value may be, and how it becomes the value of a field.

Context values are texts on the command line, and any JSON in ``cdk.json``. A rule takes them together with how messages
name the option, such as ``-c relay``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from shared.base.struct import Struct

T = TypeVar("T")
Word = TypeVar("Word", bound=str)


class OptionError(ValueError):
    """An invalid context value; the message names the key, the value and what is allowed."""


class Rule(Struct, Generic[T], kw_only=True):
    """The default of an option, and the reader of its context values; ``written`` is the reverse of ``read``."""

    default: T
    read: Callable[[object, str], T]
    written: Callable[[T], object] = lambda value: value


class Option(Struct, kw_only=True):
    """The context key of a field, and its rule."""

    key: str
    rule: Rule[Any]


def option(key: str, rule: Rule[T]) -> T:
    """The field of a dataclass for this context key."""
    return dataclasses.field(default=rule.default, metadata={"option": Option(key=key, rule=rule)})


def refused(option: str, value: object, allowed: str) -> OptionError:
    """The error about a value."""
    return OptionError(f"{option}={value}: must be {allowed}")


def words(meanings: Mapping[str, T], written: Callable[[T], object] = lambda value: value) -> Rule[T]:
    """The meaning of a word, in upper or lower case; the first is the default."""
    default = next(iter(meanings))

    def read(value: object, option: str) -> T:
        word = str(value) or default
        if word.lower() not in meanings:
            raise refused(option, word, " or ".join(meanings))
        return meanings[word.lower()]

    return Rule(default=meanings[default], read=read, written=written)


def choice(default: Word, *alternatives: Word) -> Rule[Word]:
    """One of these words."""
    return words({word: word for word in (default, *alternatives)})


def switch(default: str, alternative: str, *, is_on: bool = False) -> Rule[bool]:
    """One of two words; ``is_on`` is the meaning of the default."""
    return words(
        {default: is_on, alternative: not is_on}, lambda value: default if bool(value) == is_on else alternative
    )


def number(default: int, least: int, most: int, allowed: str) -> Rule[int]:
    """A whole number within these bounds, as ``allowed`` says in words; empty is the default."""

    def read(value: object, option: str) -> int:
        digits = str(value) or str(default)
        if not digits.isascii() or not digits.isdigit() or not least <= int(digits) <= most:
            raise refused(option, digits, allowed.format(least=least, most=most))
        return int(digits)

    return Rule(default=default, read=read)


def text(item: Callable[[str, str], str], *, default: str = "") -> Rule[str]:
    """A text, as ``item`` reads it; empty is the default."""

    def read(value: object, option: str) -> str:
        return item(str(value), option) if str(value) else default

    return Rule(default=default, read=read)


def names(
    item: Callable[[str, str], T],
    *,
    is_set: bool = False,
    written: Callable[[Sequence[T]], object] = lambda value: value if isinstance(value, str) else [*map(str, value)],
) -> Rule[tuple[T, ...]]:
    """Names separated by commas or as a list, each as ``item`` reads it. ``is_set``: each once."""

    def read(value: object, option: str) -> tuple[T, ...]:
        items = [item(name, option) for name in separated(value, option)]
        return tuple(dict.fromkeys(items) if is_set else items)

    return Rule(default=(), read=read, written=written)


def separated(value: object, option: str) -> tuple[str, ...]:
    """The names of a text with commas, or of a list.

    Raises:
        OptionError: it is neither.
    """
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, Sequence) and all(isinstance(part, str) for part in value):
        return tuple(value)
    raise refused(option, value, "names separated by commas")
