"""A source's samples, read in the background and kept: a scrape never waits for the cluster or AWS.

While a source can't be read, its last samples are shown until they are too old; metrics about the export itself say so.
A bug in reading doesn't end the export either: it counts as a failed read.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from cli.error_messages import message_of
from cli.errors import CommandError
from cli.export import families
from cli.export.exposition import Sample, sample
from shared.base import runtime
from shared.base.aws import error_code
from shared.base.struct import Struct
from shared.cluster.errors import ApiError, ForbiddenError, UnauthorizedError
from shared.instance_types.catalog_store import CatalogMissingError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

OK, DENIED, UNREACHABLE, MISSING, FAILED = "ok", "denied", "unreachable", "missing", "failed"
"""Outcomes of a read."""
OUTCOMES = (OK, DENIED, UNREACHABLE, MISSING, FAILED)
_DENIALS = ("AccessDenied", "Unauthorized", "Expired", "InvalidClientTokenId", "UnrecognizedClient", "Signature")
_STALE_READS = 4
_MIN_STALE_SECONDS = 300.0
STUCK_SECONDS = 600.0
"""All time-outs and retries of a read take less."""


class NotDeployedError(LookupError):
    """Tenon isn't deployed for the cluster, or what is read doesn't exist yet."""


class _Kept(Struct):
    """The samples of the last read that succeeded, and when it began."""

    at: datetime
    samples: tuple[Sample, ...]


class Poller:
    """Reads one source each ``interval`` seconds, by ``read``, which gets the time.

    ``log`` gets one line when the source fails, and one when it is read again.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[datetime], Iterable[Sample]],
        *,
        interval: float,
        log: Callable[[str], None],
    ) -> None:
        self.name = name
        self.interval = interval
        self.stuck_seconds = STUCK_SECONDS
        self.outcome = ""
        """Of the last read; empty before the first one ended."""
        self._read = read
        self._log = log
        self._kept: _Kept | None = None
        self._duration = 0.0
        self._began: float | None = None
        self._outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))

    @property
    def max_age(self) -> float:
        """Seconds after which samples aren't shown any more."""
        return max(_STALE_READS * self.interval, _MIN_STALE_SECONDS)

    def poll(self) -> None:
        """Read the source once."""
        now, began = runtime.now(), time.monotonic()
        self._began = began
        try:
            samples = tuple(self._read(now))
        except Exception as error:  # noqa: BLE001 (the next read may succeed, and the other sources continue)
            self._ended(outcome_of(error), _text(error))
        else:
            self._kept = _Kept(now, samples)
            self._ended(OK, "")
        self._duration, self._began = time.monotonic() - began, None

    def is_stuck(self) -> bool:
        """Whether a read doesn't end, such as one for which a command of the kubeconfig gets no token."""
        began = self._began
        return began is not None and time.monotonic() - began > self.stuck_seconds

    def _ended(self, outcome: str, why: str) -> None:
        if outcome not in (self.outcome, OK):
            self._log(f"{self.name} can't be read ({outcome}): {why}")
        elif outcome == OK and self.outcome not in {OK, ""}:
            self._log(f"{self.name} is read again")
        self._outcomes[outcome] += 1
        self.outcome = outcome

    def samples(self, now: datetime) -> Iterator[Sample]:
        """The samples, if they are young enough, and those about the source."""
        kept = self._kept
        age = (now - kept.at).total_seconds() if kept is not None else 0.0
        is_current = kept is not None and age <= self.max_age
        if kept is not None and is_current:
            yield from kept.samples
        yield sample(families.UP, is_current and self.outcome == OK, source=self.name)
        yield sample(families.LAST_SUCCESS, kept.at.timestamp() if kept is not None else 0.0, source=self.name)
        if kept is not None:
            yield sample(families.AGE, max(0.0, age), source=self.name)
        yield sample(families.DURATION, self._duration, source=self.name)
        for outcome in OUTCOMES:
            yield sample(families.READS, self._outcomes[outcome], source=self.name, outcome=outcome)


def outcome_of(error: Exception) -> str:
    """Why a read failed, in one word."""
    match error:
        case ForbiddenError() | UnauthorizedError():
            return DENIED
        case ClientError():
            return DENIED if any(part in error_code(error) for part in _DENIALS) else FAILED
        case ApiError() | BotoCoreError() | OSError():
            return UNREACHABLE
        case CatalogMissingError() | NotDeployedError():
            return MISSING
        case _:
            return FAILED


def _text(error: Exception) -> str:
    message = message_of(error)
    if message is None and isinstance(error, (CommandError, CatalogMissingError, NotDeployedError, OSError)):
        message = str(error)
    if message is None:
        traceback.print_exception(error, file=sys.stderr)
        message = f"{type(error).__name__}: {error}"
    return " ".join(message.split())


def poll_until(stop: threading.Event, pollers: Sequence[Poller]) -> None:
    """Read each of these sources when it is due, one after another, until the event is set."""
    due = dict.fromkeys(range(len(pollers)), 0.0)
    while not stop.is_set():
        for number, poller in enumerate(pollers):
            if time.monotonic() >= due[number] and not stop.is_set():
                due[number] = time.monotonic() + poller.interval
                poller.poll()
        stop.wait(max(0.0, min(due.values()) - time.monotonic()))
