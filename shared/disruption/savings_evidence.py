"""Evidence for how long savings last: from the load history, by NodePool, in hours and in words.

A NodePool whose load is as on earlier days at this time saves until the time at which the load returned on those days.
A NodePool whose workloads were scaled in saves for as long as their earlier scale-ins lasted, or for
:data:`SCALE_IN_DURATION` if there were none. Without either, the node's age decides (:mod:`shared.disruption.savings`).
"""

from __future__ import annotations

import statistics
from datetime import timedelta
from typing import TYPE_CHECKING

from shared.base.struct import Struct, with_fields
from shared.disruption.load_history import PoolLoad, time_until_load
from shared.disruption.workloads import Load, pool_loads

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from shared.disruption.load_history import LoadHistory, ScaleIn
    from shared.disruption.workloads import Workload

SCALE_IN_DURATION = timedelta(hours=6)
"""How long a scale-in is expected to last if the workload had none before. bench/scale_in.py measures its effect."""
MIN_REMOVED_SHARE = 0.08
"""The share by which a NodePool's load must have fallen within a quarter of an hour. A daily load falls more slowly."""
RETURNED_LEVEL = 1.1
"""How far the load must rise, relative to now, until nodes that are removed now are needed again."""
MIN_DURATION = timedelta(minutes=5)
"""The least that savings are expected to last."""


class SavingsEvidence(Struct, kw_only=True):
    """Savings in a NodePool are expected to last for ``duration``; ``why`` says it to users.

    It holds for nodes that were created by ``since``: one that was launched after a scale-in was needed despite it.
    ``is_limit``: savings last at most that long, and as the node's age says within that.
    """

    duration: timedelta
    why: str
    since: datetime
    is_limit: bool = False

    def applies_to(self, created: datetime | None) -> bool:
        """Whether it holds for a node that was created then."""
        return self.is_limit or (created is not None and created <= self.since)


def savings_evidence(
    history: LoadHistory, workloads: Mapping[str, Workload], *, now: datetime
) -> dict[str, SavingsEvidence]:
    """The evidence by NodePool; none for a NodePool without any. ``workloads`` are the current ones."""
    loads = pool_loads(workloads)
    by_pool: dict[str, list[ScaleIn]] = {}
    for scale_in in history.scale_ins:
        by_pool.setdefault(scale_in.pool, []).append(scale_in)
    evidence = {}
    for pool in by_pool.keys() | history.pools.keys():
        load = loads.get(pool, Load())
        scale_ins = _scale_in_evidence(by_pool.get(pool, []), now)
        limit = _daily_limit(history.pools.get(pool, PoolLoad()), load, now)
        if limit is not None and (scale_ins is None or limit.duration < scale_ins.duration):
            evidence[pool] = limit if scale_ins is None else with_fields(limit, since=scale_ins.since, is_limit=False)
        elif scale_ins is not None:
            evidence[pool] = scale_ins
    return evidence


def _daily_limit(series: PoolLoad, load: Load, now: datetime) -> SavingsEvidence | None:
    """When the load of earlier days rose from here; None without a day like today."""
    level = Load(cpu=round(load.cpu * RETURNED_LEVEL), memory=round(load.memory * RETURNED_LEVEL))
    duration = time_until_load(series, level, current=load, now=now)
    if duration is None:
        return None
    why = f"its load rose again at about {now + duration:%H:%M} UTC on earlier days"
    return SavingsEvidence(duration=max(MIN_DURATION, duration), why=why, since=now, is_limit=True)


def _scale_in_evidence(scale_ins: Sequence[ScaleIn], now: datetime) -> SavingsEvidence | None:
    """The evidence of the scale-ins of one NodePool that haven't ended; None where they removed too little."""
    active = [s for s in scale_ins if s.ended is None and now - s.at < SCALE_IN_DURATION]
    # Small ones tell nothing about the nodes launched since the last large one: some workload is always scaled in.
    large = [s for s in active if s.pool_share >= MIN_REMOVED_SHARE]
    if not large:
        return None
    removed = _sum(s.removed for s in active)
    remaining = {s.workload: _remaining(s, scale_ins, now) for s in active}
    weights = {s.workload: s.removed.share_of(removed) for s in active}
    seconds = sum(remaining[key].total_seconds() * weight for key, weight in weights.items()) / sum(weights.values())
    largest = max(active, key=lambda s: (s.removed.share_of(removed), s.workload))
    more = f" and {len(active) - 1} other workload{'s' if len(active) > 2 else ''}" if len(active) > 1 else ""  # noqa: PLR2004 (plural)
    return SavingsEvidence(
        duration=max(MIN_DURATION, timedelta(seconds=seconds)),
        why=f"{largest}{more}",
        since=max(s.at for s in large),
    )


def _remaining(scale_in: ScaleIn, scale_ins: Iterable[ScaleIn], now: datetime) -> timedelta:
    """How much longer the scale-in is expected to last: as its workload's earlier ones."""
    earlier = [
        (s.ended - s.at).total_seconds() for s in scale_ins if s.workload == scale_in.workload and s.ended is not None
    ]
    if not earlier:
        return SCALE_IN_DURATION
    elapsed = now - scale_in.at
    expected = timedelta(seconds=statistics.median(earlier))
    # One that lasts longer than those before is expected to last for as long again.
    return expected - elapsed if expected > elapsed else elapsed


def _sum(loads: Iterable[Load]) -> Load:
    total = Load()
    for load in loads:
        total = total.plus(load)
    return total
