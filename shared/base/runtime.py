"""The process that a function runs in: environment variables, clock, sleep, and a cache that outlives one invocation.

On Lambda this is the process itself. The local world runs every function in one process on a simulated clock, so it
gives each function its own :class:`Runtime`. Code calls :func:`current` when it runs, never at import. Threads run in a
copy of the caller's context, and so with the invocation's runtime.
"""

from __future__ import annotations

import contextlib
import contextvars
import gc
import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from shared.base.struct import Struct

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from concurrent.futures import Executor

T = TypeVar("T")
R = TypeVar("R")
THREADS = 8
KUBERNETES_THREADS = 16
"""For writes to the Kubernetes API, which mostly wait for etcd; EC2 would throttle as many calls."""
SEQUENTIAL_LIMIT = 2
"""Up to this many items are worked on in the caller's thread: starting threads would cost more than it saves.

That holds for requests of milliseconds; callers whose requests take seconds pass a lower limit."""


def _wait(changed: threading.Event, seconds: float) -> None:
    changed.wait(seconds)


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _threads(count: int) -> Executor:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 (few invocations need threads)

    return ThreadPoolExecutor(count)


class Runtime(Struct, kw_only=True):
    """Environment variables, the time (timezone-aware, UTC), a sleep (seconds), and the cache of a warm process.

    ``wait`` ends after that many seconds, or when another thread sets the event; ``threads`` makes a pool of up to that
    many.
    """

    environ: Mapping[str, str]
    now: Callable[[], datetime] = _utc_now
    sleep: Callable[[float], None] = time.sleep
    wait: Callable[[threading.Event, float], None] = _wait
    threads: Callable[[int], Executor] = _threads
    cache: dict[str, Any] = {}

    def cached(self, name: str, make: Callable[[], T]) -> T:
        """The cached value of that name; ``make`` creates it on first use in this process."""
        if name not in self.cache:
            self.cache[name] = make()
        value: T = self.cache[name]
        return value


_process = Runtime(environ=os.environ)
_current: contextvars.ContextVar[Runtime] = contextvars.ContextVar("runtime", default=_process)


def current() -> Runtime:
    """The runtime of this invocation; outside the local world, the process."""
    return _current.get()


def now() -> datetime:
    """The time in this invocation: the clock of what is created once and used in many invocations."""
    return current().now()


def sleep(seconds: float) -> None:
    """Sleep as this invocation does."""
    current().sleep(seconds)


def cached(name: str, make: Callable[[], T]) -> T:
    """What this process keeps under that name; ``make`` creates it on first use."""
    return current().cached(name, make)


@contextlib.contextmanager
def using(runtime: Runtime) -> Iterator[None]:
    """Run the body with another runtime; for the local world and for tests."""
    token = _current.set(runtime)
    try:
        yield
    finally:
        _current.reset(token)


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector: traversing every pod repeatedly takes 5 times as long as decoding."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def in_threads(
    function: Callable[[T], R],
    items: Iterable[T],
    *,
    sequential_limit: int = SEQUENTIAL_LIMIT,
    threads: int = THREADS,
) -> list[R]:
    """The results of ``function`` for all items, in their order: requests to Kubernetes and AWS are mostly waiting.

    An exception is raised when all earlier calls have finished.
    """
    remaining = list(items)
    if len(remaining) <= sequential_limit:
        return [function(item) for item in remaining]
    with current().threads(min(threads, len(remaining))) as pool:
        return [f.result() for f in [pool.submit(contextvars.copy_context().run, function, item) for item in remaining]]


def one_ahead(first: T, following: Callable[[T], Callable[[], T] | None]) -> Iterator[T]:
    """The first item and those that follow it, each made in a thread while the caller works on the one before.

    ``following`` returns the call that makes the item after this one, or None at the end. An exception of a call is
    raised in its item's place.
    """
    call = following(first)
    if call is None:
        yield first
        return
    with current().threads(1) as pool:
        item = first
        while call is not None:
            coming = pool.submit(contextvars.copy_context().run, call)
            yield item
            item = coming.result()
            call = following(item)
        yield item
