"""Work on many things at once: a request to the Kubernetes API is mostly waiting.

Threads carry the caller's context, so what they do is done in the invocation's name. What one of them raises is raised
when all before it are done.
"""

from __future__ import annotations

import contextvars
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
R = TypeVar("R")
THREADS = 8
FEW = 4
"""So many are worked on one after the other: threads would cost more than they save."""


def each(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The answers for all items, in their order."""
    todo = list(items)
    if len(todo) <= FEW:
        return [work(item) for item in todo]
    with ThreadPoolExecutor(min(THREADS, len(todo))) as pool:
        return [f.result() for f in [pool.submit(contextvars.copy_context().run, work, item) for item in todo]]
