"""One invocation's part: it finds the lease held and ends, or holds the watch until its own end.

A holder sends hints, renews the lease, and hands over to its successor. A successor watches and defers its hints until
the lease is released or expires. Who can't renew the lease any more stops without sending.
"""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from functions.relay.relay_lease import DURATION, RENEW_INTERVAL, LeaseLostError, RelayLease, State
from relay.relay import Relay
from shared.cluster.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aws_lambda_powertools import Logger
    from mypy_boto3_events import EventBridgeClient

    from shared.base.runtime import Runtime
    from shared.cluster.client import Client

LIFETIME = timedelta(minutes=14)
"""How long an invocation holds the watch; a minute less than Lambda's limit."""
HANDOVER_WINDOW = timedelta(seconds=150)
"""How long before its end a holder may be succeeded. The schedule starts two invocations in that time."""
_FRESH = RENEW_INTERVAL + timedelta(seconds=1)
"""A holder that has renewed in this time lives; a later one is watched."""
_POLL = timedelta(seconds=1)
"""How often the lease is read while a holder or successor waits for the other."""
_HANDOVER = timedelta(seconds=10)
"""How long a holder waits until it has observed what its successor has."""
_MAX_FLUSH = timedelta(seconds=20)
_MAX_BACKOFF_SECONDS = 5.0
CACHE_KEY = "relay"
"""In the runtime's cache: the relay while the invocation runs."""


class RelayEndedError(RuntimeError):
    """A watcher has ended though nobody stopped it: the next invocation starts again."""


class Tenure:
    """The invocation ``lease.identity``, which began at ``began``."""

    def __init__(
        self,
        client: Client,
        events: EventBridgeClient,
        lease: RelayLease,
        *,
        bus: str,
        cluster: str,
        began: datetime,
        runtime: Runtime,
        logger: Logger,
    ) -> None:
        self._lease = lease
        self._ends = began + LIFETIME
        self._logger = logger
        self._now = runtime.now
        self._runtime = runtime
        self._changed = threading.Event()
        self._new_relay: Callable[[bool], Relay] = lambda defers: Relay(
            client,
            events,
            bus=bus,
            cluster=cluster,
            now=self._now,
            max_backoff=_MAX_BACKOFF_SECONDS,
            on_change=self._changed.set,
            defers=defers,
        )

    def run(self) -> str:
        """Hold or succeed if it is this invocation's turn; what came of it, for the log and tests.

        Raises:
            ApiError: the lease can't be read or written, so this invocation doesn't begin.
            RelayEndedError: a watcher has ended.
        """
        while True:
            now = self._now()
            state = self._lease.read()
            if not state.is_held(now):
                if not self._lease.acquire(state, ends=self._ends):
                    return "held"
                return self._with_relay(self._hold, defers=False)
            assert state.renewed is not None
            if now - state.renewed <= _FRESH:
                break
            self._pause()
        if state.ends is None or now + HANDOVER_WINDOW < state.ends or state.has_successor(now):
            return "held"
        if not self._lease.succeed(state, observed=None):
            return "held"
        return self._with_relay(self._succeed, defers=True)

    def _with_relay(self, use: Callable[[Relay], str], *, defers: bool) -> str:
        relay = self._new_relay(defers)
        self._runtime.cache[CACHE_KEY] = relay
        relay.start()
        try:
            return use(relay)
        except LeaseLostError as error:
            self._logger.warning("The relay stops: another invocation holds the lease", extra={"why": str(error)})
            return "lost"
        finally:
            # An execution environment is frozen after its invocation: no thread may be left.
            relay.stop_watching()
            del self._runtime.cache[CACHE_KEY]

    def _succeed(self, relay: Relay) -> str:
        """Watch until the lease is free, then hold it."""
        named_at = self._now()
        is_announced = False
        while True:
            self._check_watchers(relay)
            now = self._now()
            try:
                state = self._lease.read()
                if not state.is_held(now):
                    if not self._lease.acquire(state, ends=self._ends):
                        continue
                    relay.take_over(state.observed if not state.holder else None)
                    return self._hold(relay)
                if state.successor is None or state.successor.identity != self._lease.identity:
                    return "superseded"
                is_ready = relay.is_settled
                if (is_ready and not is_announced) or now >= named_at + RENEW_INTERVAL:
                    observed = relay.observed if is_ready else None
                    if self._lease.succeed(state, observed=observed):
                        named_at, is_announced = now, is_ready
            except ApiError as error:
                self._logger.warning("The lease can't be read; trying again", extra={"why": str(error)})
            if now >= self._ends:
                return "never held"
            self._pause()

    def _hold(self, relay: Relay) -> str:
        """Send hints until a successor is ready, or until the end.

        Raises:
            LeaseLostError: another invocation holds the lease, or may hold it.
        """
        self._logger.info("Watching the cluster", extra={"until": self._ends.isoformat()})
        renewal = _Renewal(self._lease, self._now)
        ready_at: datetime | None = None
        while True:
            self._check_watchers(relay)
            self._changed.clear()
            now = self._now()
            state = renewal.renewed(now)
            ready = state.successor if state.has_successor(now) else None
            if ready is None or ready.observed is None:
                ready_at = None
            else:
                ready_at = ready_at or now
                if _has_observed(relay.observed, ready.observed) or now >= ready_at + _HANDOVER:
                    break
            if now >= self._ends:
                break
            relay.step(now)
            moments = [renewal.due, self._ends, *([due] if (due := relay.due()) is not None else [])]
            # Ends early when something changes in the cluster.
            self._runtime.wait(self._changed, max((min(moments) - self._now()).total_seconds(), 0.0))
        relay.stop_watching()
        return self._hand_over(relay, renewal)

    def _hand_over(self, relay: Relay, renewal: _Renewal) -> str:
        """Send what is pending, and release the lease."""
        give_up_at = self._now() + _MAX_FLUSH
        while not (is_sent := relay.flush()) and self._now() < give_up_at:
            self._pause()
            renewal.renewed(self._now())
        try:
            self._lease.release(observed=relay.observed if is_sent else None)
        except ApiError as error:
            self._logger.warning("The lease can't be released; it expires by itself", extra={"why": str(error)})
        self._logger.info("Ended", extra={"sent": dict(relay.sent), "not_sent": relay.pending})
        return "ended"

    def _pause(self) -> None:
        self._runtime.wait(threading.Event(), _POLL.total_seconds())

    def _check_watchers(self, relay: Relay) -> None:
        if not relay.is_alive:
            raise RelayEndedError("a watcher has ended; the next invocation starts the watch again")


class _Renewal:
    """When the held lease is renewed, and its last known state."""

    def __init__(self, lease: RelayLease, now: Callable[[], datetime]) -> None:
        self._lease = lease
        self._state = State()
        self._succeeded = now()
        self.due = self._succeeded

    def renewed(self, now: datetime) -> State:
        """The lease, renewed if that is due.

        Raises:
            LeaseLostError: another invocation holds it, or it couldn't be renewed in time, or this process was frozen.
        """
        if now >= self._succeeded + DURATION:
            raise LeaseLostError("the lease was not renewed in time")
        if now >= self.due:
            try:
                self._state = self._lease.renew()
            except ApiError:
                self.due = now + _POLL
            else:
                self._succeeded = now
                self.due = now + (_POLL if self._state.has_successor(now) else RENEW_INTERVAL)
        return self._state


def _has_observed(own: dict[str, int], successors: dict[str, int]) -> bool:
    return all(own.get(kind, 0) >= version for kind, version in successors.items())
