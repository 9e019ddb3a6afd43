"""Cron schedules, of disruption budgets and of CapacityBuffers: when they begin, and whether a budget is active.

Five fields or a macro, with the rules of robfig/cron that Karpenter's users know: names, ranges, steps, ``?``, and
either of day-of-month and day-of-week when both are restricted. Budgets are in UTC, as Karpenter's. Invalid schedules
and those without any date are errors, so that a budget with such a schedule stays active.
"""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta, tzinfo

from shared.base.plurals import plural
from shared.base.struct import Struct

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_SUNDAY = 7
_MAX_LENGTH = 1000
_SHOWN = 80
_MAX_DIGITS = 9
_LONGEST_MONTH = dict.fromkeys(range(1, 13), 31) | {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
_EARLIEST = datetime.min.replace(tzinfo=UTC) + timedelta(days=1)
"""The calendar's first time in every zone: durations may be longer than it goes back."""
_LEAP_GAP_DAYS = 8 * 366
"""Between 1896 and 1904, or 2096 and 2104, there is no 29 February for eight years: the rarest schedule's gap."""


class CronError(ValueError):
    """The text is not a schedule, or has no date; the message names it and what is allowed."""


class _Field(Struct):
    name: str
    low: int
    high: int
    names: dict[str, int]


_FIELDS = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of month", 1, 31, {}),
    _Field("month", 1, 12, {name: i for i, name in enumerate(_MONTHS, 1)}),
    _Field("day of week", 0, _SUNDAY, {name: i for i, name in enumerate(_DAYS)}),
)


class Schedule(Struct):
    """The minutes of a schedule. ``either_day``: one of the two day fields is enough."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool

    def on(self, day: datetime) -> bool:
        """Whether the schedule has a time on that day."""
        if day.month not in self.months:
            return False
        by_date = day.day in self.days
        by_weekday = day.isoweekday() % 7 in self.weekdays
        return (by_date or by_weekday) if self.either_day else (by_date and by_weekday)

    def next_after(self, moment: datetime, zone: tzinfo = UTC) -> datetime | None:
        """The first time (UTC) after the moment (timezone-aware); None if the calendar ends before it.

        Times are local times of the zone. One that a change to daylight saving time leaves out comes an hour later by
        the clock, one that comes twice counts the first time.

        >>> friday = datetime(2026, 11, 27, 10, tzinfo=UTC)
        >>> str(parse_cron("0 9 * * mon-fri").next_after(friday))
        '2026-11-30 09:00:00+00:00'
        """
        try:
            day = moment.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
            for _ in range(_LEAP_GAP_DAYS + 1):
                if self.on(day) and (time := self._after(moment, day, zone)) is not None:
                    return time
                day += timedelta(days=1)
        except OverflowError:
            pass
        return None

    def is_active(self, duration: timedelta, now: datetime, zone: tzinfo = UTC) -> bool:
        """Whether ``now`` is within ``duration`` after a time of the schedule; the end is excluded."""
        since = now - duration if duration < now - _EARLIEST else _EARLIEST
        begin = self.next_after(since, zone)
        return begin is not None and begin <= now

    def _after(self, moment: datetime, day: datetime, zone: tzinfo) -> datetime | None:
        """The first time (UTC) of that day after the moment; of two hours, because the clock may skip one."""
        times: list[datetime] = []
        for hour in self.hours:
            is_last = bool(times)
            local = (day.replace(hour=hour, minute=minute, tzinfo=zone) for minute in self.minutes)
            times += [time for time in (t.astimezone(UTC) for t in local) if time > moment]
            if is_last:
                break
        return min(times, default=None)


@functools.lru_cache(maxsize=256)
def parse_cron(text: str) -> Schedule:
    """The schedule of a text such as "0 9 * * mon-fri" or "@daily".

    Raises:
        CronError: the text is not a schedule, or no date matches it.
    """
    if len(text) > _MAX_LENGTH:
        raise CronError(f'"{text[:_SHOWN]}…" is not a schedule: it has more than {_MAX_LENGTH} characters')
    stripped = text.strip()
    if stripped.startswith("@") and stripped not in MACROS:
        raise CronError(f'"{text}" is not a schedule; allowed macros are {", ".join(MACROS)}')
    parts = MACROS.get(stripped, stripped).split()
    if len(parts) != len(_FIELDS):
        raise CronError(
            f'"{text}" is not a schedule: it has {plural(len(parts), "field")}, but minute, hour, day of month, '
            f"month and day of week are needed (or a macro such as @daily)"
        )
    minutes, hours, days, months, weekdays = (
        _values(part, field, text) for part, field in zip(parts, _FIELDS, strict=True)
    )
    either_day = not (_is_star(parts[2]) or _is_star(parts[4]))
    if not either_day and all(min(days) > _LONGEST_MONTH[month] for month in months):
        raise CronError(f'"{text}" never comes: none of its months has a day {min(days)}')
    return Schedule(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=days,
        months=months,
        weekdays=frozenset(day % _SUNDAY for day in weekdays),
        either_day=either_day,
    )


def _is_star(part: str) -> bool:
    return any(item.partition("/")[0] in {"*", "?"} and item.partition("/")[2] in {"", "1"} for item in part.split(","))


def _values(part: str, field: _Field, text: str) -> frozenset[int]:
    values: set[int] = set()
    for item in part.split(","):
        span, slash, step_text = item.partition("/")
        step = _number(step_text, text, field) if slash else 1
        first, dash, last = span.partition("-")
        if span in {"*", "?"}:
            low, high = field.low, (field.high if field.high != _SUNDAY else _SUNDAY - 1)
        else:
            low = _value(first, text, field)
            high = _value(last, text, field) if dash else (field.high if slash else low)
        if low > high and field.low <= high and low <= field.high:
            raise CronError(
                f'"{text}" is not a schedule: "{item}" ends before it begins, and ranges can\'t wrap around; '
                f'two ranges can: "{first}-{_last(field)},{_first(field)}-{last}"'
            )
        if step < 1 or low > high or low < field.low or high > field.high:
            raise CronError(f'"{text}" is not a schedule: {_allowed(item, field)}')
        values.update(range(low, high + 1, step))
    return frozenset(values)


def _first(field: _Field) -> str:
    """The field's first value, as a name if it has names."""
    return next(iter(field.names), str(field.low))


def _last(field: _Field) -> str:
    return next(reversed(field.names), str(field.high))


def _value(word: str, text: str, field: _Field) -> int:
    named = field.names.get(word.lower())
    return named if named is not None else _number(word, text, field)


def _number(word: str, text: str, field: _Field) -> int:
    if not (word.isascii() and word.isdigit() and len(word) <= _MAX_DIGITS):
        raise CronError(f'"{text}" is not a schedule: {_allowed(word, field)}')
    return int(word)


def _allowed(word: str, field: _Field) -> str:
    names = f" or {next(iter(field.names))} …" if field.names else ""
    return f'"{word}" is no {field.name}; allowed are {field.low} to {field.high}{names}, *, ranges, lists and steps'


def active(schedule: str, duration: timedelta, now: datetime) -> bool:
    """Whether ``now`` is within ``duration`` after a time of the schedule; the end is excluded.

    >>> friday = datetime(2026, 11, 27, 16, 59, tzinfo=UTC)
    >>> active("0 9 * * mon-fri", timedelta(hours=8), friday)
    True
    >>> active("0 9 * * mon-fri", timedelta(hours=8), friday + timedelta(minutes=1))
    False

    Raises:
        CronError: the schedule is invalid; the caller keeps the budget active.
    """
    return parse_cron(schedule).is_active(duration, now)
