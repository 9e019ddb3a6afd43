"""A holder or successor of the relay's lease is alive by what a clock can have written, whatever the lease says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from functions.relay.relay_lease import DURATION, State, Successor

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def is_held(renewed: datetime) -> bool:
    return State(holder="a", renewed=renewed).is_held(NOW)


def has_successor(renewed: datetime) -> bool:
    return State(holder="a", renewed=NOW, successor=Successor(identity="b", renewed=renewed)).has_successor(NOW)


@pytest.mark.parametrize("is_alive", [is_held, has_successor])
def test_only_a_renewal_close_to_now_is_one(is_alive: Callable[[datetime], bool]) -> None:
    assert is_alive(NOW)
    assert is_alive(NOW - DURATION + SECOND)
    assert not is_alive(NOW - DURATION)
    assert is_alive(NOW + DURATION - SECOND)  # its clock is ahead
    assert not is_alive(NOW + DURATION)
    assert not is_alive(datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(timedelta(hours=-14))))
    assert not is_alive(datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))))
