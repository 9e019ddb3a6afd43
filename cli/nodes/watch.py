"""Live view of the nodes: pods, NodeClaims and nodes are read at each update, prices every few minutes.

With a keyboard the cluster is read in another thread, so that a key moves the view at once while 20,000 pods are read.
"""

from __future__ import annotations

import contextlib
import contextvars
import queue
import threading
import time
from typing import TYPE_CHECKING

from rich.live import Live

from cli.cluster.observed_cluster import chunks_by_node
from cli.cluster.pricing import offering_prices
from cli.nodes import keyboard, rows
from cli.nodes.view import View, frame
from shared.base import runtime
from shared.base.struct import Struct, with_fields
from shared.cluster.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.console import Console

    from cli.cluster.observed_cluster import ObservedCluster
    from cli.nodes.keyboard import Keyboard
    from cli.nodes.rows import NodeRows
    from cli.nodes.selection import Selection
    from cli.nodes.view import Frame
    from shared.snapshot import Snapshot

PRICE_MAX_AGE = 300.0
"""Seconds until prices are read again."""
_TICK = 0.2
"""Seconds after which an update or another size of the terminal is noticed, if no key is typed."""


def read_rows(observed: ObservedCluster) -> NodeRows:
    """The rows of the cluster."""
    return _rows(observed, _price_lookup(observed))


def _price_lookup(observed: ObservedCluster) -> Callable[[Mapping[str, str]], float | None]:
    return offering_prices(observed.offerings.resolve_pools(observed.snapshot)).of_node


def _rows(observed: ObservedCluster, price: Callable[[Mapping[str, str]], float | None]) -> NodeRows:
    snapshot, node_groups = observed.snapshot, observed.node_groups
    coming = node_groups.coming(snapshot) if node_groups is not None else ()
    groups = node_groups.group_by_node if node_groups is not None else {}
    built = rows.build(
        snapshot.nodes,
        (*snapshot.node_claims, *coming),
        snapshot.pods,
        price=price,
        now=observed.now,
        chunks=chunks_by_node(snapshot),
        groups=groups | {claim.name: claim.name.partition("/")[0] for claim in coming},
    )
    return with_fields(built, prices=observed.prices)


class _Update(Struct, kw_only=True):
    """The rows as last read; ``error`` says why they aren't current."""

    rows: NodeRows
    pauses: tuple[str, ...]
    error: str = ""


class _Updates:
    """Reads the cluster again. While it can't be reached, the last rows stay, with the error."""

    def __init__(self, observed: ObservedCluster, refresh: Callable[[], Snapshot]) -> None:
        self._observed = observed
        self._refresh = refresh
        self._price, self._priced_at = _price_lookup(observed), time.monotonic()
        self.latest = _Update(rows=_rows(observed, self._price), pauses=observed.pauses)

    def read(self) -> _Update:
        try:
            self._observed = with_fields(self._observed, snapshot=self._refresh(), now=runtime.now())
            error = ""
        except UnavailableError as unavailable:
            error = unavailable.message or str(unavailable)
        if time.monotonic() - self._priced_at > PRICE_MAX_AGE:
            self._price, self._priced_at = _price_lookup(self._observed), time.monotonic()
        self.latest = _Update(
            rows=_rows(self._observed, self._price), pauses=self._observed.pauses, error=" ".join(error.split())
        )
        return self.latest


def watch(
    console: Console,
    observed: ObservedCluster,
    refresh: Callable[[], Snapshot],
    selection: Selection,
    *,
    interval: float,
) -> None:
    """Update the table until ``q`` or Ctrl-C. While the cluster can't be reached, it shows the last state and why."""
    updates = _Updates(observed, refresh)
    with (
        contextlib.suppress(KeyboardInterrupt, EOFError),
        keyboard.opened() as keys,
        Live(console=console, auto_refresh=False, screen=True) as live,
    ):

        def show(update: _Update, view: View) -> Frame:
            shown = frame(
                console,
                update.rows,
                selection,
                view,
                name=observed.name,
                pauses=update.pauses,
                error=update.error,
                keys=keys is not None,
            )
            live.update(shown, refresh=True)
            return shown

        if keys is None:
            while True:
                show(updates.latest, View())
                runtime.sleep(interval)
                updates.read()
        with _in_background(updates, interval) as changes:
            _follow_keys(keys, updates.latest, changes, show, console)


def _follow_keys(
    keys: Keyboard,
    update: _Update,
    changes: queue.SimpleQueue[_Update | BaseException],
    show: Callable[[_Update, View], Frame],
    console: Console,
) -> None:
    """Show each update, and what each key changes, until the view is closed."""
    view, size = View(), console.size
    shown = show(update, view)
    while True:
        typed = keys.read(_TICK)
        for key in typed:
            before = view.text
            view = view.after(key, page=shown.page, count=shown.count)
            if view.closed:
                return
            if view.text != before:
                # the number of rows is another one for the next key
                shown = show(update, view)
        newer = _newest(changes)
        if typed or newer is not None or console.size != size:
            update, size = newer or update, console.size
            shown = show(update, view)


def _newest(changes: queue.SimpleQueue[_Update | BaseException]) -> _Update | None:
    newest = None
    with contextlib.suppress(queue.Empty):
        while True:
            change = changes.get_nowait()
            if isinstance(change, BaseException):
                raise change
            newest = change
    return newest


@contextlib.contextmanager
def _in_background(updates: _Updates, interval: float) -> Iterator[queue.SimpleQueue[_Update | BaseException]]:
    """Updates, or the error that ended them, read every ``interval`` seconds while it is entered.

    The thread is a daemon: an answer that is awaited doesn't keep the command from ending.
    """
    changes: queue.SimpleQueue[_Update | BaseException] = queue.SimpleQueue()
    stop = threading.Event()

    def read() -> None:
        try:
            while not stop.wait(interval):
                changes.put(updates.read())
        except Exception as error:  # noqa: BLE001 (raised in the main thread)
            changes.put(error)

    threading.Thread(target=contextvars.copy_context().run, args=(read,), daemon=True).start()
    try:
        yield changes
    finally:
        stop.set()
