"""Annotations of CapacityBuffers: windows of time in their zones, and proportions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from shared.api import labels as names
from shared.api.capacity_demand import DemandError, problems, proportion, windows

OFFICE_HOURS = "0 9 * * * until 0 18 * * * in {}"


def is_open(text: str, moment: datetime) -> bool:
    return any(window.is_open(moment) for window in windows(text))


@pytest.mark.parametrize("zone", ["Asia/Seoul", "America/New_York", "Europe/Berlin", "UTC", "Australia/Lord_Howe"])
@pytest.mark.parametrize("text", [OFFICE_HOURS, "0 9 * * * for 9h in {}"])
def test_a_window_is_open_from_nine_to_six_by_the_zones_clock_on_every_day_of_a_year(zone: str, text: str) -> None:
    (window,) = windows(text.format(zone))
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    while moment.year == 2026:
        assert window.is_open(moment) == (9 <= moment.astimezone(ZoneInfo(zone)).hour < 18), moment
        moment += timedelta(minutes=30)


@pytest.mark.parametrize(("second", "opened"), [(-1, False), (0, True), (9 * 3600 - 1, True), (9 * 3600, False)])
def test_the_window_opens_and_closes_on_the_second(second: int, opened: bool) -> None:  # noqa: FBT001
    nine = datetime(2026, 11, 23, 9, tzinfo=ZoneInfo("Asia/Seoul"))
    assert is_open(OFFICE_HOURS.format("Asia/Seoul"), nine + timedelta(seconds=second)) == opened


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati"])
def test_a_duration_longer_than_the_calendar_is_always_open(zone: str) -> None:
    assert is_open(f"0 9 * * * for 2000000000h in {zone}", datetime(2026, 11, 23, 3, tzinfo=UTC))


def test_a_window_over_midnight_and_over_a_weekend() -> None:
    night, weekend = "0 22 * * * until 0 6 * * *", "0 18 * * fri until 0 8 * * mon"
    assert is_open(night, datetime(2026, 11, 23, 23, tzinfo=UTC))
    assert is_open(night, datetime(2026, 11, 23, 5, tzinfo=UTC))
    assert not is_open(night, datetime(2026, 11, 23, 12, tzinfo=UTC))
    assert is_open(weekend, datetime(2026, 11, 22, 12, tzinfo=UTC))
    assert not is_open(weekend, datetime(2026, 11, 24, 12, tzinfo=UTC))


def test_a_start_that_daylight_saving_time_leaves_out_comes_an_hour_later_and_is_not_lost() -> None:
    (window,) = windows("30 2 * * * for 1h in America/New_York")
    spring = datetime(2026, 3, 8, 6, 59, tzinfo=UTC)  # 01:59 in New York; the clock goes from 2 to 3 at 7:00 UTC
    assert window.opens_after(spring) == datetime(2026, 3, 8, 7, 30, tzinfo=UTC)


def test_a_start_that_comes_twice_opens_the_window_once() -> None:
    (window,) = windows("30 1 * * * for 10m in America/New_York")
    first = datetime(2026, 11, 1, 5, 30, tzinfo=UTC)
    assert window.opens_after(first - timedelta(hours=1)) == first
    assert window.opens_after(first) == datetime(2026, 11, 2, 6, 30, tzinfo=UTC)


def test_several_windows_each_with_its_own_number_of_chunks() -> None:
    weekday, weekend = windows(
        "0 9 * * mon-fri for 9h in Asia/Seoul\n\n  0 12 * * sat,sun for 3h in Asia/Seoul keep 2\n"
    )
    assert (weekday.chunks, weekend.chunks) == (None, 2)


@pytest.mark.parametrize(
    ("text", "size", "chunks"),
    [
        ("10", 0, 0),
        ("10", 1, 1),
        ("10", 10, 1),
        ("10", 11, 2),
        ("1:1, 10:2, 100:5", 0, 0),
        ("1:1, 10:2, 100:5", 9, 1),
        ("1:1, 10:2, 100:5", 10, 2),
        ("1:1,10:2,100:5", 5_000, 5),
        ("0:3, 50:1", 49, 3),
        ("0:3, 50:1", 50, 1),
    ],
)
def test_a_proportion(text: str, size: int, chunks: int) -> None:
    assert proportion(text).chunks(size) == chunks


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "ten", "1:1,", "1:1 10:2", "10:2, 1:1", "1:1, 1:2", "1:-1"])
def test_what_is_no_proportion(text: str) -> None:
    with pytest.raises(DemandError, match="is no proportion; allowed is"):
        proportion(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty; allowed is one window in each line"),
        ("0 9 * * *", '"0 9 * * *" is no window; allowed is'),
        ("0 9 * * for 9h", '"0 9 * * for 9h" is no window: "0 9 * *" is not a schedule'),
        ("0 9 * * * for nine", '"0 9 * * * for nine" is no window: "nine" is not a duration'),
        ("0 9 * * * for Never", "its duration must be longer than 0s"),
        ("0 9 * * * for 0s", "its duration must be longer than 0s"),
        ("0 9 * * * until 0 9 * * *", "it ends when it begins"),
        ("0 9 * * * for 9h in Seoul", '"Seoul" is no time zone'),
        ("0 9 * * * for 9h in ../etc/passwd", '"../etc/passwd" is no time zone'),
        ("0 9 * * * for 9h keep many", "is no window"),
        ("0 9 * * * for 9h\n0 9 31 2 * for 1h", '"0 9 31 2 * for 1h" is no window'),
    ],
)
def test_what_is_no_window(text: str, problem: str) -> None:
    with pytest.raises(DemandError) as error:
        windows(text)
    assert problem in str(error.value)


def test_every_annotation_that_cannot_be_used_is_named_with_its_value() -> None:
    bad = {names.SCHEDULE: "daily", names.PER_CORES: "x", names.MIN_CHUNKS: "-2", names.LEAD_TIME: "soon", "other": "x"}
    sentences = list(problems(bad))
    assert [line.partition(":")[0] for line in sentences] == [
        f"metadata.annotations[{name}]" for name in (names.SCHEDULE, names.LEAD_TIME, names.PER_CORES, names.MIN_CHUNKS)
    ]
    assert not list(problems({names.SCHEDULE: "0 9 * * * for 9h", names.PER_NODES: "10", names.MIN_CHUNKS: "0"}))
