"""At which recorded states each request of a recording may have been answered.

A write's response names its revision, so its place is known: the state before it. Other requests were answered at some
moment between their receipt and their completion; which states those were, the writes around them tell.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.real.differential.comparison import is_success, normalized

if TYPE_CHECKING:
    from collections.abc import Iterable

    from local.real.recording import Exchange, Recording, Revision

READS = frozenset(("get", "list"))


@dataclass(frozen=True)
class Placed:
    """An exchange, and the first and the last state (a revision's number, 0 for none) on which it was answered."""

    exchange: Exchange
    first: int
    last: int
    written: Revision | None = None
    """The revision that it wrote, if its response says so."""


class Timeline:
    """The revisions of a recording, and the requests that wrote them."""

    def __init__(self, recording: Recording) -> None:
        self._revisions = recording.revisions
        self._numbers = [revision.number for revision in self._revisions]
        self._by_number = {revision.number: revision for revision in self._revisions}
        self._writers = self._writers_of(recording.exchanges)
        self._doubtful = {
            exchange.id
            for number, exchange in self._writers.items()
            if self._by_number[number].type == "MODIFIED" and _follows_unnamed(exchange, recording.exchanges)
        }
        self._written = {exchange.id: number for number, exchange in self._writers.items()}
        known = [(e, n) for n, e in self._writers.items() if e.id not in self._doubtful]
        completed = sorted((exchange.completed, number) for exchange, number in known)
        received = sorted((exchange.received, number) for exchange, number in known)
        self._completions, self._receipts = [time for time, _ in completed], [time for time, _ in received]
        self._completed = _running_max(number for _, number in completed)
        self._received = _running_min([number for _, number in received])

    def state_after(self, number: int) -> float:
        """The number of the next revision; infinity behind the last."""
        index = bisect_right(self._numbers, number)
        return self._numbers[index] if index < len(self._numbers) else float("inf")

    def place(self, exchange: Exchange) -> Placed:
        """The states at which the request may have been answered."""
        if exchange.id in self._written:
            revision = self._by_number[self._written[exchange.id]]
            before = self._state_before(self._first_own(revision))
            # After an eviction or a binding, whose response names no revision, this may have changed nothing.
            last = revision.number if exchange.id in self._doubtful else before
            return Placed(exchange, before, last, revision)
        before, begun = (
            bisect_left(self._completions, exchange.received),
            bisect_right(self._receipts, exchange.completed),
        )
        first = self._completed[before - 1] if before else 0
        last = self._received[begun] - 1 if begun < len(self._received) else self._numbers[-1]
        if exchange.verb in READS and is_success(exchange):
            # A read may be answered from a cache, which is behind.
            first = _version(exchange.response)
            last = max(first, last) if exchange.verb == "get" else first
        return Placed(exchange, first, max(first, last))

    def _writers_of(self, exchanges: Iterable[Exchange]) -> dict[int, Exchange]:
        """The request that wrote each revision, as far as responses tell."""
        writers: dict[int, Exchange] = {}
        for exchange in sorted(exchanges, key=lambda e: e.completed):
            revision = self._by_number.get(_version(exchange.response))
            if revision is not None and _is_write(exchange) and _is_answer(exchange, revision):
                writers.setdefault(revision.number, exchange)
        return writers

    def _first_own(self, revision: Revision) -> int:
        """The first revision of the write that ended with this one: a deletion marks some objects before it."""
        if revision.type != "DELETED":
            return revision.number
        index = bisect_left(self._numbers, revision.number)
        for earlier in reversed(self._revisions[:index]):
            if earlier.object["metadata"].get("uid") == revision.object["metadata"]["uid"]:
                is_own = earlier.number not in self._writers and "deletionTimestamp" in earlier.object["metadata"]
                return earlier.number if is_own else revision.number
        return revision.number

    def _state_before(self, number: int) -> int:
        index = bisect_left(self._numbers, number)
        return self._numbers[index - 1] if index else 0


def _follows_unnamed(exchange: Exchange, exchanges: Iterable[Exchange]) -> bool:
    """Whether the request follows one on the same object whose response names no revision."""
    unnamed = {f"{exchange.path}/eviction", f"{exchange.path}/binding"}
    return any(e.path in unnamed and e.completed <= exchange.received for e in exchanges)


def _is_write(exchange: Exchange) -> bool:
    if exchange.verb == "delete" and exchange.body:
        is_dry_run = b'"dryRun"' in exchange.body  # the query isn't read where there is a body
    else:
        is_dry_run = "dryRun" in exchange.query
    return exchange.verb not in {*READS, "watch"} and is_success(exchange) and not is_dry_run


def _is_answer(exchange: Exchange, revision: Revision) -> bool:
    """Whether the response is the object of that revision, and not of one that the request has left as it was.

    A Scale is only a part of its object.
    """
    if exchange.resource.endswith("/scale"):
        return bool(revision.object["metadata"]["uid"] == exchange.response["metadata"].get("uid"))
    return bool(normalized(exchange.response) == normalized(revision.object))


def _version(obj: dict[str, Any]) -> int:
    text = (obj.get("metadata") or {}).get("resourceVersion") or ""
    return int(text) if text.isdigit() else 0


def _running_max(numbers: Iterable[int]) -> list[int]:
    highest: list[int] = []
    for number in numbers:
        highest.append(max(number, highest[-1] if highest else 0))
    return highest


def _running_min(numbers: list[int]) -> list[int]:
    """The lowest number from each place on."""
    lowest: list[int] = []
    for number in reversed(numbers):
        lowest.append(min(number, lowest[-1] if lowest else number))
    return lowest[::-1]
