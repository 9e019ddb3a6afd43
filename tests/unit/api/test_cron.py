from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.api.cron import MACROS, CronError, active, parse_cron

MONDAY = datetime(2026, 11, 23, tzinfo=UTC)
moments = st.datetimes(datetime(2020, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 (hypothesis adds it)


@st.composite
def fields(draw: st.DrawFn, low: int, high: int) -> str:
    a, b = sorted((draw(st.integers(low, high)), draw(st.integers(low, high))))
    step = draw(st.integers(1, high))
    return draw(st.sampled_from(["*", f"*/{step}", str(a), f"{a}-{b}", f"{a},{b}", f"{a}/{step}", f"{a}-{b}/{step}"]))


schedules = st.tuples(fields(0, 59), fields(0, 23), fields(1, 28), fields(1, 12), fields(0, 6)).map(" ".join)


def test_working_hours_are_in_force_from_nine_for_eight_hours_on_weekdays() -> None:
    hours = ("0 9 * * mon-fri", timedelta(hours=8))
    assert not active(*hours, MONDAY.replace(hour=8, minute=59))
    assert active(*hours, MONDAY.replace(hour=9))
    assert active(*hours, MONDAY.replace(hour=16, minute=59, second=59))
    assert not active(*hours, MONDAY.replace(hour=17))
    assert not active(*hours, MONDAY.replace(hour=9) - timedelta(days=1))


def test_the_time_is_utc_whatever_zone_now_is_in() -> None:
    seoul = timezone(timedelta(hours=9))
    assert active("0 9 * * *", timedelta(hours=1), datetime(2026, 11, 23, 18, 30, tzinfo=seoul))
    assert not active("0 9 * * *", timedelta(hours=1), datetime(2026, 11, 23, 9, 30, tzinfo=seoul))


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("30 8 * * *", MONDAY, MONDAY.replace(hour=8, minute=30)),
        ("*/15 * * * *", MONDAY, MONDAY.replace(minute=15)),
        ("5/20 * * * *", MONDAY.replace(minute=26), MONDAY.replace(minute=45)),
        ("0 0 * * sun", MONDAY, MONDAY + timedelta(days=6)),
        ("0 0 * * 7", MONDAY, MONDAY + timedelta(days=6)),
        ("0 0 * * FRI-SAT", MONDAY, MONDAY + timedelta(days=4)),
        ("0 0 1 jan ?", MONDAY, datetime(2027, 1, 1, tzinfo=UTC)),
        ("0 0 13 * fri", MONDAY, MONDAY + timedelta(days=4)),
        ("0 0 29 2 *", MONDAY, datetime(2028, 2, 29, tzinfo=UTC)),
        ("0 0 29 2 *", datetime(2096, 2, 29, tzinfo=UTC), datetime(2104, 2, 29, tzinfo=UTC)),
        ("@monthly", MONDAY, datetime(2026, 12, 1, tzinfo=UTC)),
        ("@hourly", MONDAY.replace(second=1), MONDAY.replace(hour=1)),
    ],
)
def test_the_next_hit(schedule: str, after: datetime, expected: datetime) -> None:
    assert parse_cron(schedule).next_after(after) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "5-1 * * * *",
        "a * * * *",
        "-1 * * * *",
        "1, * * * *",
        "² * * * *",
        "@every 5m",
        "@reboot",
        "TZ=UTC 0 9 * * *",
    ],
)
def test_an_invalid_schedule_is_rejected_with_its_text(text: str) -> None:
    with pytest.raises(CronError, match="is not a schedule"):
        active(text, timedelta(hours=1), MONDAY)


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("0 22-6 * * *", '"22-6" ends before it begins, and ranges can\'t wrap around; two ranges can: "22-23,0-6"'),
        ("0 9 * * fri-mon", 'two ranges can: "fri-sat,sun-mon"'),
        ("0 0 1 nov-feb *", 'two ranges can: "nov-dec,jan-feb"'),
    ],
)
def test_a_range_that_wraps_around_is_refused_with_the_two_ranges_that_say_the_same(text: str, instead: str) -> None:
    with pytest.raises(CronError) as refused:
        parse_cron(text)
    assert instead in str(refused.value)
    part = instead.rpartition('"')[0].rpartition('"')[2]
    item = next(word for word in text.split() if "-" in word)
    assert parse_cron(text.replace(item, part)).next_after(MONDAY) is not None


def test_a_day_that_never_comes_is_refused() -> None:
    with pytest.raises(CronError, match="never comes: none of its months has a day 31"):
        parse_cron("0 0 31 2,4 *")
    assert parse_cron("0 0 31 2 mon").next_after(MONDAY) == datetime(2027, 2, 1, tzinfo=UTC)


@pytest.mark.parametrize("macro", MACROS)
def test_a_macro_means_its_five_fields(macro: str) -> None:
    assert parse_cron(macro) == parse_cron(MACROS[macro])


@given(schedules, moments)
def test_the_next_hit_is_later_and_hits(schedule: str, moment: datetime) -> None:
    parsed = parse_cron(schedule)
    hit = parsed.next_after(moment)
    assert hit is not None
    assert hit > moment
    assert (hit.second, hit.microsecond) == (0, 0)
    assert hit.minute in parsed.minutes
    assert hit.hour in parsed.hours
    assert parsed.on(hit)


@given(schedules, moments, st.integers(1, 10_000))
def test_a_budget_is_in_force_exactly_from_each_hit_for_its_duration(
    schedule: str, moment: datetime, minutes: int
) -> None:
    duration = timedelta(minutes=minutes)
    hit = parse_cron(schedule).next_after(moment)
    assert hit is not None
    assert active(schedule, duration, hit)
    assert active(schedule, duration, hit + duration - timedelta(microseconds=1))
    assert active(schedule, duration, moment) == (
        (first := parse_cron(schedule).next_after(moment - duration)) is not None and first <= moment
    )


@given(st.text(alphabet="0123456789*/-,?@ monfrijadily", max_size=20))
def test_any_text_is_a_schedule_or_refused(text: str) -> None:
    try:
        parse_cron(text)
    except CronError:
        return


def test_a_duration_longer_than_all_time_is_no_error() -> None:
    assert active("@hourly", timedelta.max, MONDAY)
