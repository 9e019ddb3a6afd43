"""Runs of the event loop end, also where calls take so long that something is always due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from local.clock import Clock
from local.world.event_loop import EventLoop

START = datetime(2026, 11, 27, tzinfo=UTC)


class AlwaysDue:
    """An actor each of whose steps takes ten seconds, and leaves the next one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def step(self, now: datetime) -> bool:
        self._clock.skip_to(now + timedelta(seconds=10))
        return True

    def due(self) -> datetime:
        return self._clock.now()


def test_a_run_ends_a_minute_late_at_most_where_something_is_always_due() -> None:
    clock = Clock(START, elapsed=lambda: 0.0)
    loop = EventLoop(
        clock, [AlwaysDue(clock)], is_busy=lambda: False, after_step=lambda: None, unfinished=lambda: "nothing"
    )
    loop.run_for(timedelta(minutes=5))
    assert timedelta(minutes=5) <= clock.now() - START <= timedelta(minutes=6, seconds=10)
