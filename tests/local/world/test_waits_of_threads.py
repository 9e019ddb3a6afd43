"""The clock while threads wait: their waits overlap, as those of calls to AWS do."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from local.clock import Clock
from shared.base import runtime

START = datetime(2026, 11, 27, tzinfo=UTC)
CALL = 0.35


@pytest.fixture
def clock() -> Clock:
    """A clock on which work takes no time."""
    return Clock(START, elapsed=lambda: 0.0)


def call_in_threads(clock: Clock, calls: int, *, sequential_limit: int = 1) -> timedelta:
    """The time that calls of 0.35 s take a function that makes them in threads."""
    began = clock.now()
    with runtime.using(runtime.Runtime(environ={}, now=clock.now, sleep=clock.sleep, threads=clock.threads)):
        runtime.in_threads(lambda _: runtime.sleep(CALL), range(calls), sequential_limit=sequential_limit)
    return clock.now() - began


@pytest.mark.parametrize(
    ("calls", "seconds"), [(1, 0.35), (2, 0.35), (8, 0.35), (9, 0.7), (16, 0.7), (17, 1.05), (300, 38 * 0.35)]
)
def test_calls_of_8_threads_overlap(clock: Clock, calls: int, seconds: float) -> None:
    assert call_in_threads(clock, calls).total_seconds() == pytest.approx(seconds)


def test_calls_one_after_the_other_add_up(clock: Clock) -> None:
    assert call_in_threads(clock, 8, sequential_limit=8).total_seconds() == pytest.approx(8 * CALL)


def test_a_long_call_holds_up_only_its_own_thread(clock: Clock) -> None:
    with clock.threads(2) as pool:
        for seconds in (10.0, 1.0, 1.0, 1.0):
            pool.submit(clock.sleep, seconds)
    assert clock.now() - START == timedelta(seconds=10)


def test_a_thread_reads_the_time_that_it_has_come_to(clock: Clock) -> None:
    def wait(seconds: float) -> datetime:
        clock.sleep(seconds)
        return clock.now()

    with clock.threads(3) as pool:
        times = [f.result() - START for f in [pool.submit(wait, seconds) for seconds in (3.0, 1.0, 2.0)]]
    assert times == [timedelta(seconds=3), timedelta(seconds=1), timedelta(seconds=2)]


def test_threads_that_wait_for_each_other_by_a_lock_are_not_stuck(clock: Clock) -> None:
    lock = threading.Lock()

    def wait() -> None:
        with lock:
            clock.sleep(CALL)

    with clock.threads(8) as pool:
        for future in [pool.submit(wait) for _ in range(32)]:
            future.result(timeout=20)
    assert clock.now() > START


def test_invocations_at_the_same_time_wait_at_the_same_time(clock: Clock) -> None:
    begin = threading.Barrier(2)

    def invocation() -> None:
        with clock.own_time():
            begin.wait(timeout=20)
            assert call_in_threads(clock, 16).total_seconds() == pytest.approx(0.7)
            clock.sleep(CALL)

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(invocation) for _ in range(2)]:
            future.result(timeout=20)
    assert (clock.now() - START).total_seconds() == pytest.approx(3 * CALL)


def test_a_waiting_thread_does_not_hold_up_the_event_loop(clock: Clock) -> None:
    with clock.threads(1) as pool:
        pool.submit(clock.sleep, 5.0).result()
        assert clock.now() - START == timedelta(seconds=5)
        clock.skip_to(START + timedelta(seconds=60))
    assert clock.now() - START == timedelta(seconds=60)
