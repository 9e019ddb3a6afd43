"""EventBridge's schedule expressions: when ``rate(...)`` and ``cron(...)`` fire next.

A rate counts from when it is first asked; a cron expression has EventBridge's six fields, in UTC, to the minute.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_CRON = re.compile(r"cron\((\S+) (\S+) (\S+) (\S+) (\S+) (\S+)\)")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_HORIZON = timedelta(days=366)


class ScheduleError(ValueError):
    """An expression that EventBridge would refuse, or that never fires; the text says which."""


def after(expression: str, moment: datetime) -> datetime:
    """The first time after the moment that the expression fires.

    Raises:
        ScheduleError: not a schedule, or none within a year.
    """
    rate = _RATE.fullmatch(expression)
    if rate:
        return moment + timedelta(**{f"{rate[2]}s": int(rate[1])})
    cron = _CRON.fullmatch(expression)
    if not cron:
        raise ScheduleError(f"{expression} is neither rate(...) nor cron(...) with six fields")
    minutes, hours, days, months, weekdays, years = cron.groups()
    minute_set, hour_set = _values(minutes, 0, 59), _values(hours, 0, 23)
    candidate = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
    end = moment + _HORIZON
    while candidate <= end:
        if not (
            candidate.year in _values(years, 1970, 2199)
            and candidate.month in _values(_named(months, _MONTHS), 1, 12)
            and candidate.day in _values(days, 1, 31)
            # EventBridge counts from Sunday = 1; Python from Monday = 1.
            and candidate.isoweekday() % 7 + 1 in _values(_named(weekdays, _DAYS), 1, 7)
        ):
            candidate = candidate.replace(hour=0, minute=0) + timedelta(days=1)
        elif candidate.hour not in hour_set:
            candidate = candidate.replace(minute=0) + timedelta(hours=1)
        elif candidate.minute not in minute_set:
            candidate += timedelta(minutes=1)
        else:
            return candidate
    raise ScheduleError(f"{expression} doesn't fire within a year of {moment.isoformat()}")


def _named(field: str, names: tuple[str, ...]) -> str:
    for number, name in enumerate(names, 1):
        field = field.upper().replace(name, str(number))
    return field


def _values(field: str, least: int, most: int) -> frozenset[int]:
    chosen: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        try:
            if span in {"*", "?"}:
                low, high = least, most
            else:
                first, _, last = span.partition("-")
                low = int(first)
                high = int(last) if last else (most if step else low)
            chosen.update(range(low, high + 1, int(step or 1)))
        except ValueError as error:
            raise ScheduleError(f"{part} in a cron expression is not understood here") from error
    if not chosen or min(chosen) < least or max(chosen) > most:
        raise ScheduleError(f"{field} in a cron expression is outside {least}-{most}")
    return frozenset(chosen)
