"""Call a function on many items in threads, because a request to the Kubernetes API or to AWS is mostly waiting.

Each thread runs in a copy of the caller's context, and so with the invocation's runtime. An exception is raised when
all earlier calls have finished.
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
SEQUENTIAL_LIMIT = 4
"""Up to this many items are worked on in the caller's thread: starting threads would cost more than it saves.

That holds for requests of milliseconds; callers whose requests take seconds pass a lower limit."""


def each(function: Callable[[T], R], items: Iterable[T], *, sequential_limit: int = SEQUENTIAL_LIMIT) -> list[R]:
    """The results of ``function`` for all items, in their order."""
    remaining = list(items)
    if len(remaining) <= sequential_limit:
        return [function(item) for item in remaining]
    with ThreadPoolExecutor(min(THREADS, len(remaining))) as pool:
        return [f.result() for f in [pool.submit(contextvars.copy_context().run, function, item) for item in remaining]]
