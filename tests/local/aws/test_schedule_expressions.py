from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.aws.schedule_expressions import ScheduleError, after

NOON = datetime(2026, 11, 21, 12, 0, 30, tzinfo=UTC)  # a Saturday


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("rate(1 minute)", NOON + timedelta(minutes=1)),
        ("rate(12 hours)", NOON + timedelta(hours=12)),
        ("cron(0/15 * * * ? *)", datetime(2026, 11, 21, 12, 15, tzinfo=UTC)),
        ("cron(30 9 ? * MON-FRI *)", datetime(2026, 11, 23, 9, 30, tzinfo=UTC)),
        ("cron(0 0 1 JAN ? *)", datetime(2027, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_schedule_fires_when_eventbridge_would(expression: str, expected: datetime) -> None:
    assert after(expression, NOON) == expected


@pytest.mark.parametrize("expression", ["rate(1 fortnight)", "cron(* * * *)", "cron(99 * * * ? *)", "every minute"])
def test_an_invalid_schedule_is_rejected(expression: str) -> None:
    with pytest.raises(ScheduleError):
        after(expression, NOON)


@given(
    minute=st.integers(0, 59),
    hour=st.integers(0, 23),
    at=st.datetimes(min_value=datetime(2026, 1, 1), max_value=datetime(2027, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001 - hypothesis adds the zone
)
def test_a_daily_schedule_fires_within_a_day_and_at_its_minute(minute: int, hour: int, at: datetime) -> None:
    fires = after(f"cron({minute} {hour} * * ? *)", at)
    assert (fires.hour, fires.minute) == (hour, minute)
    assert timedelta() < fires - at <= timedelta(days=1)
