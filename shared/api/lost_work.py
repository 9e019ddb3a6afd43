"""How much work a pod loses when it is moved: annotation ``tenon.sh/lost-work`` on the pod or its NodePool.

Without one it is what the pod took to become ready, as it needs that again, but ten minutes at least. A pod that became
ready later than an hour after its start was ready before, and only became so again: then its start-up time is unknown.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.duration import duration_or_none
from shared.api.meta import condition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.kubernetes import Pod

DEFAULT_LOST_WORK = timedelta(minutes=10)
"""Tenon's figure."""
MAX_LOST_WORK = timedelta(hours=24)
_MAX_START_UP = timedelta(hours=1)


def lost_work(pod: Pod, of_pool: Mapping[str, str]) -> timedelta:
    """For how long the pod's work is lost; ``of_pool`` are its NodePool's annotations. Invalid texts don't count.

    >>> from shared.api.kubernetes import Pod
    >>> lost_work(Pod(), {"tenon.sh/lost-work": "2h"})
    datetime.timedelta(seconds=7200)
    """
    for where in (pod.metadata.annotations, of_pool):
        stated = _read(where.get(names.LOST_WORK))
        if stated is not None:
            return stated
    return max(DEFAULT_LOST_WORK, start_up_time(pod))


def start_up_time(pod: Pod) -> timedelta:
    """How long after its start the pod became ready; 0 if that isn't known."""
    ready = condition(pod.status.conditions, "Ready")
    started = pod.status.start_time
    if ready is None or ready.status != "True" or ready.last_transition_time is None or started is None:
        return timedelta()
    took = ready.last_transition_time - started
    return took if timedelta() <= took <= _MAX_START_UP else timedelta()


def lost_work_problem(annotations: Mapping[str, str]) -> str:
    """What is wrong with the annotation; "" if nothing is, or it isn't there."""
    text = annotations.get(names.LOST_WORK)
    if text is None or _read(text) is not None:
        return ""
    return f'"{text}" must be a duration from "0s" to "24h"'


def _read(text: str | None) -> timedelta | None:
    duration = duration_or_none(text)
    return duration if duration is not None and timedelta() <= duration <= MAX_LOST_WORK else None
