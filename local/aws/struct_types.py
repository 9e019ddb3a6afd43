"""Prepares msgspec's types for threads: the first decoder of a type must not be made in two threads at once.

msgspec collects a type's fields at its first use, and a second thread that uses the type meanwhile crashes the process.
On Lambda a process runs one invocation at a time. Here several run in one process, so the types are used once before.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from infra import installation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PREPARED: set[type] = set()


def prepare(handlers: Iterable[str]) -> None:
    """Import the handlers' modules, and use every struct type that they define or import."""
    for handler in handlers:
        if handler.startswith("functions."):
            installation.own_module(handler.rsplit(".", 1)[0])
    for type_ in set(_subclasses(msgspec.Struct)) - _PREPARED:
        # Types whose annotations exist for the type checker only are never decoded.
        with contextlib.suppress(NameError, TypeError):
            msgspec.json.Decoder(type_)
        _PREPARED.add(type_)


def _subclasses(type_: type[Any]) -> Iterator[type[Any]]:
    for subclass in type_.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
