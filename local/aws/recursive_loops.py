"""Lambda's recursive loop detection: a function that its own messages invoke again and again is stopped.

Lambda counts how often each function ran in one chain of requests. The count travels in the trace header's ``Lineage``
field: a message that a function sends to SQS carries the counts of the invocation that sent it. After 16 invocations
of a function in one chain the next is dropped, unless the function's ``RecursiveLoop`` is ``Allow``. EventBridge
doesn't carry the field, so a chain ends there (Lambda Developer Guide, "Recursive loop detection").
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_INVOCATIONS = 16
"""Invocations of one function in a chain; AWS says "approximately 16"."""
ERROR = "RecursiveInvocationException"

Lineage = Mapping[str, int]
"""The number of invocations in a chain so far, by function."""

LINEAGE: ContextVar[Lineage] = ContextVar("lineage", default={})  # noqa: B039 - never changed in place
"""The lineage of the invocation that runs in this context, itself included."""


def attach(message: Any) -> None:
    """Let a message carry the lineage of the invocation that sends it."""
    message.lineage = LINEAGE.get()


@contextlib.contextmanager
def new_chain() -> Iterator[None]:
    """While entered, messages don't carry the lineage of the invocation in this context."""
    token = LINEAGE.set({})
    try:
        yield
    finally:
        LINEAGE.reset(token)


def of_batch(messages: Iterable[Any]) -> dict[str, int]:
    """The lineage of an invocation with these messages: the longest chain of each function.

    AWS doesn't document how the lineages of a batch are combined, so the worst case is assumed.
    """
    longest: dict[str, int] = {}
    for message in messages:
        for function, count in getattr(message, "lineage", {}).items():
            longest[function] = max(count, longest.get(function, 0))
    return longest


def is_loop(function: str, lineage: Lineage) -> bool:
    """Whether the function has run too often in the chain, so that its next invocation is dropped."""
    return lineage.get(function, 0) >= MAX_INVOCATIONS


def extended(function: str, lineage: Lineage) -> Lineage:
    """The lineage of an invocation of the function in this chain."""
    return {**lineage, function: lineage.get(function, 0) + 1}
