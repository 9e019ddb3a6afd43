"""Endurance: seven days of cluster time with a daily load in a hostile world, and idle hours.

Nothing may grow from day to day: what AWS and the cluster hold for Tenon, what flows, and what warm functions remember.
What is kept for a time grows until it is as old: its row says the bound.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from bench.endurance import week

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.endurance.week import Period

Row = dict[str, str]
_DAYS = "each midnight of 7 days, hostile world: up to 8 and 4 pods by the hour, jobs, 4 interruptions, drift on day 4"
_IDLE = "no pods, no nodes; the median of 6 hours after them"
BY_AGE = {
    "rows": "no growth after 90 days, the age of the oldest",
    "bytes of Tenon's longest object": "at most 200 kB, the bound of the load history",
}
"""What grows until it is as old as it is kept, by the bound."""


def run() -> list[Row]:
    """The rows of this part."""
    days, idle = week.run()
    return [*_days(days), *_idle(idle)]


def _days(days: Sequence[Period]) -> list[Row]:
    last = days[-1]
    flows: dict[str, Callable[[Period], int]] = {
        "invocations a day": lambda p: p.flow.invocations.total(),
        "messages received a day": lambda p: p.flow.messages,
        "calls to AWS a day": lambda p: p.flow.calls.total(),
        "writes in the cluster a day, Leases too": lambda p: p.flow.writes.total(),
        "KiB of logs a day": lambda p: p.flow.log_bytes // 1024,
        "metric series": lambda p: len(p.flow.series),
        "failed invocations": lambda p: len(p.flow.failures),
    }
    rows = [
        _row(name, BY_AGE.get(name, "no growth"), [p.inventory[name] for p in days], _DAYS) for name in last.inventory
    ]
    rows += [_row(name, "no growth", [value(p) for p in days], _DAYS) for name, value in flows.items()]
    return rows + [
        _row(f"objects in the warm cache of {name}", "no growth", [p.warm.get(name, 0) for p in days], _DAYS)
        for name in last.warm
    ]


def _idle(hours: Sequence[Period]) -> list[Row]:
    def median(value: Callable[[Period], int]) -> list[int]:
        return [round(statistics.median(value(p) for p in hours))]

    functions = hours[-1].flow.invocations
    per_function = ", ".join(f"{name} {number}" for name, number in sorted(functions.items()))
    calls = ", ".join(f"{name} {number}" for name, number in sorted(week.calls(hours[-1].flow).items()))
    grown = week.grown(hours[0].inventory, hours[-1].inventory)
    return [
        _row("invocations in an idle hour", "-", median(lambda p: p.flow.invocations.total()), per_function),
        _row("messages in an idle hour", "-", median(lambda p: p.flow.messages), _IDLE),
        _row("calls to AWS in an idle hour", "-", median(lambda p: p.flow.calls.total()), calls),
        _row("writes in an idle hour", "Leases only", median(lambda p: p.flow.writes.total()), _writes(hours)),
        _row("KiB of logs in an idle hour", "-", median(lambda p: p.flow.log_bytes // 1024), _IDLE),
        {
            "measurement": "what grows in idle hours",
            "target": "the load history, up to its bound",
            "result": ", ".join(f"{name} {change}" for name, change in grown.items()) or "nothing",
            "method": "from the first of the idle hours to the last",
        },
    ]


def _writes(hours: Sequence[Period]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(hours[-1].flow.writes.items()))


def _row(measurement: str, target: str, values: Sequence[int], method: str) -> Row:
    result = ", ".join(f"{value:,}" for value in values)
    return {"measurement": measurement, "target": target, "result": result, "method": method}
