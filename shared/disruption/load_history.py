"""The load history: how many pods each workload had, which were scaled in, and each NodePool's load of the last days.

Savings last as long as the load stays away (:mod:`shared.disruption.savings_evidence`), which one snapshot can't tell.
So every sweep compares the cluster with a small record of what it saw before. The record is bounded, holds names and
numbers only, and may be lost: without it, the duration of savings follows from the node's age.
"""

from __future__ import annotations

import statistics
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from shared.api.meta import ApiStruct, decode_annotation
from shared.base.plurals import plural
from shared.base.struct import with_fields
from shared.disruption.workloads import Load, Workload, pool_loads

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.disruption.workloads import CurrentWorkloads

RECORD = "load-history"
"""The name of the record in the cluster."""
BUCKET = timedelta(minutes=15)
"""The load of a NodePool is its highest in each quarter of an hour, counted from the epoch."""
MAX_BUCKETS = 4 * 24 * 4
"""Four days: enough to tell a daily shape from a single day."""
MAX_POOLS = 16
MAX_WORKLOADS = 300
MAX_SCALE_INS = 100
"""Bounds of the record: the largest are kept. With all of them it has less than the 200 kB of a Lease's record."""
RETENTION = timedelta(days=7)
"""How long a scale-in is remembered, so that the next one of the same workload is expected to last as long."""
MIN_SCALE_IN = 0.1
"""The share of its pods by which a workload must shrink within a bucket to count as scaled in."""
RETURNED_SHARE = 0.8
"""A scale-in has ended when this share of what was removed is back."""
_DAY = timedelta(days=1)


class ScaleIn(ApiStruct):
    """A workload had ``before`` pods and has ``after`` since ``at``; ``ended`` when most of them were back.

    ``pool_share``: by which share the load of its NodePool fell within a bucket of ``at``, whatever else came or went.
    """

    workload: str
    before: int
    after: int
    at: datetime
    requests: Load = Load()
    pool: str = ""
    pool_share: float = 0.0
    ended: datetime | None = None

    @property
    def removed(self) -> Load:
        """The load that is gone."""
        return Load().plus(self.requests, self.before - self.after)

    def __str__(self) -> str:
        """The scale-in in a sentence for users."""
        if self.after == 0 and self.workload.startswith(("Job ", "CronJob ")):
            return f"{self.workload} ended at {self.at:%H:%M} UTC ({plural(self.before, 'pod')})"
        return f"{self.workload} scaled in from {self.before} to {self.after} at {self.at:%H:%M} UTC"


class PoolLoad(ApiStruct):
    """A NodePool's load by bucket: ``first`` is the number of the first bucket, -1 in a bucket is unknown."""

    first: int = 0
    cpu: list[int] = []
    memory: list[int] = []

    def at(self, moment: datetime) -> Load | None:
        """The highest load of that quarter of an hour; None if it isn't known."""
        index = bucket_number(moment) - self.first
        if not 0 <= index < len(self.cpu) or self.cpu[index] < 0:
            return None
        return Load(cpu=self.cpu[index], memory=self.memory[index])


class LoadHistory(ApiStruct):
    """The record. ``workloads`` are compared with the next snapshot; ``scale_ins`` are sorted by time."""

    version: int = 1
    workloads: dict[str, Workload] = {}
    scale_ins: list[ScaleIn] = []
    pools: dict[str, PoolLoad] = {}


class InvalidHistoryError(ValueError):
    """The record can't be used; the text says why."""


def bucket_number(moment: datetime) -> int:
    """The number of the bucket that a moment is in."""
    return int(moment.timestamp() // BUCKET.total_seconds())


def encode(history: LoadHistory) -> str:
    """The record as JSON."""
    return msgspec.json.encode(history).decode()


def decode(text: str, *, now: datetime) -> LoadHistory:
    """The record of a text. Anybody who may write the object may have written it, so every value is checked.

    Raises:
        InvalidHistoryError: it isn't JSON of a record, or has impossible values.
    """
    try:
        history = decode_annotation(text, LoadHistory)
    except msgspec.DecodeError as error:
        raise InvalidHistoryError(f"not a load history: {error}") from error
    if history.version != 1:
        raise InvalidHistoryError(f"version {history.version} is not 1")
    too_many = len(history.workloads) > MAX_WORKLOADS or len(history.scale_ins) > MAX_SCALE_INS
    if too_many or len(history.pools) > MAX_POOLS:
        raise InvalidHistoryError("more workloads, scale-ins or NodePools than are ever kept")
    if any(len(p.cpu) != len(p.memory) or len(p.cpu) > MAX_BUCKETS for p in history.pools.values()):
        raise InvalidHistoryError("NodePool loads of unequal or impossible length")
    for scale_in in history.scale_ins:
        times = [scale_in.at, *([scale_in.ended] if scale_in.ended else [])]
        if any(t.tzinfo is None or t > now + BUCKET for t in times) or not 0 <= scale_in.after < scale_in.before:
            raise InvalidHistoryError(f"{scale_in.workload}: impossible times or numbers of pods")
    return history


# --- the next record ---


def updated(history: LoadHistory, current: CurrentWorkloads, *, now: datetime) -> LoadHistory:
    """The record after a sweep that saw these workloads: scale-ins that began or ended, the load of this bucket."""
    loads = pool_loads(current.workloads)
    continued = [s if s.ended else _continue(s, current, now) for s in history.scale_ins]
    active = {s.workload for s in continued if s.ended is None}
    settled = {key: w for key, w in history.workloads.items() if key not in current.changing}
    new = [
        _new_scale_in(key, before, after, now)
        for key, before in settled.items()
        if key not in active and _is_scaled_in(before, after := _pods_now(current, key, before))
    ]
    fallen = {pool: _fallen_share(series, loads.get(pool, Load()), now) for pool, series in history.pools.items()}
    scale_ins = [_with_pool_share(s, fallen.get(s.pool, 0.0), now) for s in (*continued, *new)]
    return LoadHistory(
        workloads=_reference(history, current, active | {s.workload for s in new}, now),
        scale_ins=_kept(scale_ins, now),
        pools=_with_bucket(history.pools, loads, now),
    )


def _pods_now(current: CurrentWorkloads, key: str, before: Workload) -> Workload:
    return current.workloads.get(key) or with_fields(before, pods=0)


def _reference(history: LoadHistory, current: CurrentWorkloads, active: set[str], now: datetime) -> dict[str, Workload]:
    """What the next sweep compares with: the most pods in this bucket; of scaled-in workloads, the current ones."""
    is_new_bucket = not any(pool.at(now) for pool in history.pools.values())
    reference = {**current.workloads, **history.workloads}
    for key, before in history.workloads.items():
        after = _pods_now(current, key, before)
        if key not in current.changing and (is_new_bucket or key in active or after.pods > before.pods):
            reference[key] = after
    return _largest({key: workload for key, workload in reference.items() if workload.pods})


def _new_scale_in(key: str, before: Workload, after: Workload, now: datetime) -> ScaleIn:
    pool = after.pool or before.pool
    return ScaleIn(workload=key, before=before.pods, after=after.pods, at=now, requests=before.requests, pool=pool)


def _fallen_share(series: PoolLoad, load: Load, now: datetime) -> float:
    """By which share the load is below the highest of this bucket and the last two."""
    known = [before for i in range(3) if (before := series.at(now - i * BUCKET)) is not None]
    highest = Load(cpu=max((k.cpu for k in known), default=0), memory=max((k.memory for k in known), default=0))
    return Load(cpu=highest.cpu - load.cpu, memory=highest.memory - load.memory).share_of(highest)


def _with_pool_share(scale_in: ScaleIn, share: float, now: datetime) -> ScaleIn:
    if scale_in.ended is not None or now - scale_in.at > BUCKET or share <= scale_in.pool_share:
        return scale_in
    return with_fields(scale_in, pool_share=round(share, 3))


def needs_writing(stored: LoadHistory, current: LoadHistory) -> bool:
    """Whether the record has changed so much that it must be stored: at most each sweep, mostly once a bucket."""
    if stored.scale_ins != current.scale_ins:
        return True
    if {k: (p.first, len(p.cpu)) for k, p in stored.pools.items()} != {
        k: (p.first, len(p.cpu)) for k, p in current.pools.items()
    }:
        return True
    return any(
        (before := stored.workloads.get(key)) is None or workload.pods > before.pods * (1 + MIN_SCALE_IN)
        for key, workload in current.workloads.items()
    )


def _is_scaled_in(before: Workload, current: Workload) -> bool:
    return before.pods - current.pods >= max(1.0, MIN_SCALE_IN * before.pods)


def _continue(scale_in: ScaleIn, current: CurrentWorkloads, now: datetime) -> ScaleIn:
    workload = current.workloads.get(scale_in.workload)
    pods = workload.pods if workload is not None else 0
    if pods >= scale_in.after + RETURNED_SHARE * (scale_in.before - scale_in.after):
        return with_fields(scale_in, ended=now)
    if pods < scale_in.after and scale_in.workload not in current.changing:
        return with_fields(scale_in, after=pods)
    return scale_in


def _kept(scale_ins: Iterable[ScaleIn], now: datetime) -> list[ScaleIn]:
    """Those within the retention; the largest if there are too many, active ones first."""
    recent = [s for s in scale_ins if now - s.at <= RETENTION]
    by_size = sorted(recent, key=lambda s: (s.ended is not None, -s.removed.cpu - s.removed.memory, s.workload))
    return sorted(by_size[:MAX_SCALE_INS], key=lambda s: (s.at, s.workload))


def _largest(workloads: dict[str, Workload]) -> dict[str, Workload]:
    def size(key: str) -> tuple[int, str]:
        workload = workloads[key]
        return -workload.pods * (workload.requests.cpu + workload.requests.memory), key

    return {key: workloads[key] for key in sorted(workloads, key=size)[:MAX_WORKLOADS]}


def _with_bucket(pools: Mapping[str, PoolLoad], loads: Mapping[str, Load], now: datetime) -> dict[str, PoolLoad]:
    """The loads by pool with the current bucket; pools without load since the retention are dropped."""
    number = bucket_number(now)
    result: dict[str, PoolLoad] = {}
    for pool in pools.keys() | loads.keys():
        series, load = pools.get(pool, PoolLoad(first=number)), loads.get(pool, Load())
        gap = number - series.first - len(series.cpu) + 1
        if not 0 <= gap <= MAX_BUCKETS:  # a clock that went back, or a record that is too old
            series, gap = PoolLoad(first=number), 1
        cpu, memory = [*series.cpu, *[-1] * gap], [*series.memory, *[-1] * gap]
        cpu[-1], memory[-1] = max(cpu[-1], load.cpu), max(memory[-1], load.memory)
        dropped = max(0, len(cpu) - MAX_BUCKETS)
        if any(value > 0 for value in cpu[dropped:]):
            result[pool] = PoolLoad(first=series.first + dropped, cpu=cpu[dropped:], memory=memory[dropped:])
    kept = sorted(result, key=lambda p: (-max(result[p].cpu), p))[:MAX_POOLS]
    return {pool: result[pool] for pool in kept}


# --- what it says about the future ---


def time_until_load(series: PoolLoad, level: Load, *, current: Load, now: datetime) -> timedelta | None:
    """How long until the load returns to ``level``, by the earlier days whose load was like now's at this time of day.

    The median of those days, at most a day; None when no day was like today.
    """
    peak = Load(cpu=max(series.cpu, default=0), memory=max(series.memory, default=0))
    durations = []
    for days in range(1, MAX_BUCKETS * BUCKET // _DAY + 1):
        start = now - days * _DAY
        before = series.at(start)
        if before is None or not _is_similar(before, current, peak):
            continue
        later = (start + i * BUCKET for i in range(1, _DAY // BUCKET + 1))
        reached = (t for t in later if (load := series.at(t)) is not None and _reaches(load, level))
        durations.append((next(reached, start + _DAY) - start).total_seconds())
    return timedelta(seconds=statistics.median(durations)) if durations else None


_SIMILAR = 0.15
"""Two loads are alike when they differ by at most this share of the highest one."""


def _is_similar(load: Load, current: Load, peak: Load) -> bool:
    return (
        abs(load.cpu - current.cpu) <= _SIMILAR * peak.cpu
        and abs(load.memory - current.memory) <= _SIMILAR * peak.memory
    )


def _reaches(load: Load, level: Load) -> bool:
    return load.cpu >= level.cpu or load.memory >= level.memory
