"""Condition WithinHourlyLimits of NodePools: whether the hour still allows launches and removals, with an event.

It is False while a limit holds nodes back, says what the last hour had, and doesn't affect Ready. NodePools that no
limit has held back don't have it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shared.api.hourly_limits import HourlyUse
from shared.api.meta import condition, with_condition

if TYPE_CHECKING:
    from datetime import datetime

    from functions.lifecycle.context import ReconcileContext
    from shared.api.meta import Condition
    from shared.api.nodepool import NodePool
    from shared.snapshot import Snapshot

WITHIN_HOURLY_LIMITS = "WithinHourlyLimits"


def write_conditions(context: ReconcileContext, snapshot: Snapshot) -> None:
    """Write the condition of every NodePool that has another; an event and the metric while a limit is reached."""
    hour = HourlyUse(context.last_hour, snapshot.node_pools, snapshot.node_claims, now=context.now)
    for pool in snapshot.node_pools:
        problem = hour.reached(pool.name)
        if problem:
            context.report.held += 1
            context.recorder.record(pool.ref, "Warning", "HourlyLimitReached", problem)
        with_hour = partial(conditions, problem=problem, hour=hour, now=context.now)
        context.attempt(pool.ref, partial(context.write_conditions, pool, with_hour))


def conditions(pool: NodePool, problem: str, hour: HourlyUse, *, now: datetime) -> list[Condition]:
    """The NodePool's conditions with WithinHourlyLimits, which begins with the first problem."""
    before = pool.status.conditions
    current = condition(before, WITHIN_HOURLY_LIMITS)
    if not problem and (current is None or current.status == "True"):
        return before
    return with_condition(
        before,
        WITHIN_HOURLY_LIMITS,
        status=not problem,
        reason="LimitReached" if problem else "WithinLimits",
        message=problem or hour.describe(pool.name),
        now=now,
        generation=pool.metadata.generation,
    )
