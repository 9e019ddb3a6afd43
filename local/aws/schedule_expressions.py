"""EventBridge's schedule expressions: the next time of ``rate(...)`` and ``cron(...)``.

A rate counts from the given time; a cron expression has EventBridge's six fields, in UTC.
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
    """An expression that EventBridge would refuse, or that never runs."""


def after(expression: str, time: datetime) -> datetime:
    """The first time of the expression after the given time.

    Raises:
        ScheduleError: it is malformed, or has no time within a year.
    """
    rate = _RATE.fullmatch(expression)
    if rate:
        return time + timedelta(**{f"{rate[2]}s": int(rate[1])})
    cron = _CRON.fullmatch(expression)
    if not cron:
        raise ScheduleError(f"{expression} is neither rate(...) nor cron(...) with six fields")
    minutes, hours, days, months, weekdays, years = cron.groups()
    minute_set, hour_set = _values(minutes, 0, 59), _values(hours, 0, 23)
    candidate = time.replace(second=0, microsecond=0) + timedelta(minutes=1)
    end = time + _HORIZON
    while candidate <= end:
        if not (
            candidate.year in _values(years, 1970, 2199)
            and candidate.month in _values(_named(months, _MONTHS), 1, 12)
            and candidate.day in _values(days, 1, 31)
            # EventBridge counts weekdays from Sunday = 1, Python from Monday = 1.
            and candidate.isoweekday() % 7 + 1 in _values(_named(weekdays, _DAYS), 1, 7)
        ):
            candidate = candidate.replace(hour=0, minute=0) + timedelta(days=1)
        elif candidate.hour not in hour_set:
            candidate = candidate.replace(minute=0) + timedelta(hours=1)
        elif candidate.minute not in minute_set:
            candidate += timedelta(minutes=1)
        else:
            return candidate
    raise ScheduleError(f"{expression} doesn't run within a year of {time.isoformat()}")


def _named(field: str, names: tuple[str, ...]) -> str:
    for number, name in enumerate(names, 1):
        field = field.upper().replace(name, str(number))
    return field


def _values(field: str, minimum: int, maximum: int) -> frozenset[int]:
    values: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        try:
            if span in {"*", "?"}:
                low, high = minimum, maximum
            else:
                first, _, last = span.partition("-")
                low = int(first)
                high = int(last) if last else (maximum if step else low)
            values.update(range(low, high + 1, int(step or 1)))
        except ValueError as error:
            raise ScheduleError(f"{part} in a cron expression is not supported here") from error
    if not values or min(values) < minimum or max(values) > maximum:
        raise ScheduleError(f"{field} in a cron expression is outside {minimum}-{maximum}")
    return frozenset(values)
