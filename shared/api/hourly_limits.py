"""What one hour may launch and remove: the limits of each NodePool and of all together, and what the last hour had.

A decision that is wrong is made again each minute: pods that never run, machines that die, evictions that bring others.
These limits bound what an hour of it costs. What the last hour had is an annotation of the Lease under which decisions
are made, written when it is renewed: it costs no request, and no two decisions count past each other. NodeClaims
younger than an hour count in any case, so a lost annotation forgets only machines that are gone.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from shared.api import labels as names
from shared.api.meta import decode_annotation
from shared.api.nodeclaim import planned_price
from shared.base.plurals import plural
from shared.base.struct import MutableStruct, Struct, WireStruct, with_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool

HOUR = timedelta(hours=1)
LAUNCHES, USD, REMOVALS = "launches", "usd", "removals"
BASE_LAUNCHES, BASE_USD = 5_000, 2_500
"""What any cluster and NodePool may launch in an hour, and as much again as they have had for longer (USD per hour)."""
BASE_REMOVALS, BASE_REMOVALS_OF_ALL = 50, 100
"""How many nodes with pods a NodePool may lose in an hour, and all together, in addition to half of their nodes."""
_ALL = ""
_PERIOD = 300
_PERIODS = 12
"""An hour is these periods (of seconds) and the one that runs, so up to five minutes more."""
_MAX_PARTS = 20


class Use(WireStruct, array_like=True):
    """What a NodePool had in a period; ``held`` are the nodes that a limit kept from being launched."""

    launches: int = 0
    usd: float = 0.0
    removals: int = 0
    held: int = 0


class FailedLaunch(WireStruct, array_like=True):
    """A launch of a NodePool that a period counts, and that got no instance."""

    period: int
    pool: str
    usd: float

    @classmethod
    def of(cls, claim: NodeClaim, *, now: datetime) -> FailedLaunch:
        """That of a NodeClaim of a decision that was made ``now``."""
        return cls(_period(now), claim.metadata.labels.get(names.NODEPOOL, _ALL), planned_price(claim))

    def is_recent(self, now: datetime) -> bool:
        """Whether the last hour still counts it."""
        return _period(now) - _PERIODS <= self.period


LastHour = dict[int, dict[str, Use]]
"""What each NodePool had, by period (since 1970) and name."""


class HourlyLimits(Struct, kw_only=True):
    """The amounts that an annotation sets; None where it sets none, and the default holds."""

    launches: int | None = None
    usd: int | None = None
    removals: int | None = None


def read_hourly_limits(text: str) -> tuple[HourlyLimits, tuple[str, ...]]:
    """The limits that an annotation's value sets, and a sentence for each part that isn't one.

    >>> read_hourly_limits("launches=200, removals=20")
    (HourlyLimits(launches=200, usd=None, removals=20), ())
    """
    amounts: dict[str, int] = {}
    problems = []
    parts = [part for part in text.replace(",", " ").split() if part]
    for part in parts[:_MAX_PARTS]:
        name, _, amount = part.partition("=")
        number = names.integer(amount)
        if name in {LAUNCHES, USD, REMOVALS} and number is not None and number >= 0:
            amounts[name] = min(number, amounts.get(name, number))
        else:
            problems.append(
                f'"{part[:100]}" is not an hourly limit; allowed are {LAUNCHES}, {USD} and {REMOVALS} with a whole '
                f"number, such as {LAUNCHES}=200"
            )
    if not parts or len(parts) > _MAX_PARTS:
        problems.append(f"has {len(parts)} parts; remove the annotation, or name a limit such as {LAUNCHES}=200")
    return HourlyLimits(**amounts), tuple(problems)


def read_last_hour(annotations: Mapping[str, str], *, now: datetime) -> LastHour:
    """What the last hour had, by the annotations of the cluster's Lease; nothing if that can't be read."""
    text = annotations.get(names.LAST_HOUR)
    if text is None:
        return {}
    try:
        periods = decode_annotation(text, LastHour)
    except msgspec.MsgspecError:
        return {}
    current = _period(now)
    return {p: pools for p, pools in periods.items() if current - _PERIODS <= p <= current + 1}


class _Scope(MutableStruct):
    """What counts for a NodePool, or for all together: its nodes, and what the last hour had.

    ``older`` nodes are there for longer than an hour, ``young`` ones were launched within it.
    """

    older: int = 0
    older_usd: float = 0.0
    young: int = 0
    young_usd: float = 0.0
    living: int = 0
    launches: int = 0
    usd: float = 0.0
    removals: int = 0
    held: int = 0

    @property
    def launched(self) -> int:
        return max(self.launches, self.young)

    @property
    def launched_usd(self) -> float:
        return max(self.usd, self.young_usd)


class HourlyUse:
    """What the last hour had and what the limits leave, while a decision counts what it adds."""

    def __init__(
        self, last_hour: LastHour, pools: Iterable[NodePool], claims: Iterable[NodeClaim], *, now: datetime
    ) -> None:
        self._now = _period(now)
        self._last_hour = {period: dict(by_pool) for period, by_pool in last_hour.items()}
        self._changed = False
        self.knows_failures = False
        """Whether the launches that got no instance were given back already."""
        self._limits = _limits(pools)
        self._scopes: defaultdict[str, _Scope] = defaultdict(_Scope)
        for claim in claims:
            self._count_claim(claim, now)
        for period, by_pool in last_hour.items():
            for pool, use in by_pool.items():
                self._count(pool, use, is_recent=period >= self._now - 1)

    # --- launches ---

    def launch_problem(self, pool: str, usd: float) -> str:
        """Why a node of that price may not be launched now, for users; empty if it may."""
        for scope in (pool, _ALL):
            used, (nodes, price) = self._scopes[scope], self._allowed_launches(scope)
            if used.launched + 1 > nodes:
                return _message(scope, f"{plural(used.launched, 'node')} launched", f"{nodes:,}", LAUNCHES)
            if usd > 0 and used.launched_usd + usd > price:
                return _message(scope, f"${used.launched_usd:,.2f}/h launched", f"${price:,.2f}/h", USD)
        return ""

    def count_launch(self, pool: str, usd: float) -> None:
        """Count a node that is launched."""
        for scope in (pool, _ALL):
            used = self._scopes[scope]
            used.launches, used.usd = used.launched + 1, used.launched_usd + usd
        self._record(pool, Use(launches=1, usd=usd))

    def count_held(self, pool: str) -> None:
        """Count a node that a limit keeps from being launched."""
        self._scopes[pool].held += 1
        self._record(pool, Use(held=1))

    def give_back(self, failed: FailedLaunch) -> None:
        """Count a launch no longer that was counted and got no instance."""
        use = self._last_hour.get(failed.period, {}).get(failed.pool, Use())
        if use.launches <= 0:
            return
        given_back = with_fields(use, launches=use.launches - 1, usd=max(0.0, use.usd - failed.usd))
        self._last_hour[failed.period][failed.pool] = given_back
        self._changed = True
        for scope in (failed.pool, _ALL):
            used = self._scopes[scope]
            used.launches, used.usd = max(0, used.launches - 1), max(0.0, used.usd - failed.usd)

    # --- removals ---

    def removals_left(self, pool: str) -> int:
        """How many more nodes with pods the NodePool may lose now."""
        return max(0, min(self._allowed_removals(s) - self._scopes[s].removals for s in (pool, _ALL)))

    def removals_left_of_all(self) -> int:
        """How many more nodes with pods all NodePools together may lose now."""
        return max(0, self._allowed_removals(_ALL) - self._scopes[_ALL].removals)

    def removal_problem(self, pool: str) -> str:
        """Why no node with pods may be removed now, for users; empty if one may."""
        for scope in (pool, _ALL):
            removed, allowed = self._scopes[scope].removals, self._allowed_removals(scope)
            if removed >= allowed:
                return _message(scope, f"{plural(removed, 'node')} with pods removed", f"{allowed:,}", REMOVALS)
        return ""

    def count_removal(self, pool: str) -> None:
        """Count a node with pods that is removed."""
        for scope in (pool, _ALL):
            self._scopes[scope].removals += 1
        self._record(pool, Use(removals=1))

    # --- what is kept and shown ---

    def changes(self) -> dict[str, str]:
        """The annotation of the Lease to write, if anything was counted since this was called last."""
        if not self._changed:
            return {}
        self._changed = False
        rounded = {
            period: {pool: with_fields(use, usd=round(use.usd, 4)) for pool, use in by_pool.items()}
            for period, by_pool in self._last_hour.items()
        }
        return {names.LAST_HOUR: msgspec.json.encode(rounded).decode()}

    def reached(self, pool: str) -> str:
        """Which limit holds back the NodePool now, for users; empty if none does."""
        if held := self._scopes[pool].held:
            return self.launch_problem(pool, 0.0) or _message(
                pool, f"{plural(held, 'node')} held back", self.describe(pool), USD
            )
        return self.removal_problem(pool) if self._scopes[pool].living else ""

    def describe(self, pool: str = _ALL) -> str:
        """What the last hour had of its limits, for users; that of all NodePools without a name."""
        used, (nodes, usd) = self._scopes[pool], self._allowed_launches(pool)
        removable = plural(self._allowed_removals(pool), "node")
        return (
            f"launched {used.launched:,} of {plural(nodes, 'node')} and ${used.launched_usd:,.2f} of ${usd:,.2f}/h, "
            f"removed {used.removals:,} of {removable} with pods"
        )

    def _allowed_launches(self, scope: str) -> tuple[int, float]:
        own, used = self._limits.get(scope, HourlyLimits()), self._scopes[scope]
        return (
            BASE_LAUNCHES + used.older if own.launches is None else own.launches,
            BASE_USD + used.older_usd if own.usd is None else own.usd,
        )

    def _allowed_removals(self, scope: str) -> int:
        own, used = self._limits.get(scope, HourlyLimits()), self._scopes[scope]
        if own.removals is not None:
            return own.removals
        # Nodes that went without a replacement were among the hour's nodes.
        nodes = used.living + max(0, used.removals - used.launched)
        return (BASE_REMOVALS_OF_ALL if scope == _ALL else BASE_REMOVALS) + nodes // 2

    # --- counting ---

    def _count_claim(self, claim: NodeClaim, now: datetime) -> None:
        pool = claim.metadata.labels.get(names.NODEPOOL)
        if pool is None:
            return
        price = planned_price(claim)
        created = claim.metadata.creation_timestamp
        # NodeClaims that were restored or adopted have no decision: their instances are older than they are.
        is_young = created is not None and now - created < HOUR and names.DECISION in claim.metadata.annotations
        for scope in (pool, _ALL):
            used = self._scopes[scope]
            used.living += claim.metadata.deletion_timestamp is None
            if is_young:
                used.young += 1
                used.young_usd += price
            else:
                used.older += 1
                used.older_usd += price

    def _count(self, pool: str, use: Use, *, is_recent: bool) -> None:
        for scope in (pool, _ALL):
            used = self._scopes[scope]
            used.launches += max(0, use.launches)
            used.usd += max(0.0, use.usd)
            used.removals += max(0, use.removals)
            used.held += max(0, use.held) if is_recent else 0

    def _record(self, pool: str, use: Use) -> None:
        by_pool = self._last_hour.setdefault(self._now, {})
        before = by_pool.get(pool, Use())
        by_pool[pool] = Use(
            launches=before.launches + use.launches,
            usd=before.usd + use.usd,
            removals=before.removals + use.removals,
            held=before.held + use.held,
        )
        self._changed = True


def _limits(pools: Iterable[NodePool]) -> dict[str, HourlyLimits]:
    """What annotations set, by NodePool; of those for all together, the least amounts."""
    limits: dict[str, HourlyLimits] = {}
    of_all = []
    for pool in pools:
        annotations = pool.metadata.annotations
        if names.HOURLY_LIMITS in annotations:
            limits[pool.name] = read_hourly_limits(annotations[names.HOURLY_LIMITS])[0]
        if names.CLUSTER_HOURLY_LIMITS in annotations:
            of_all.append(read_hourly_limits(annotations[names.CLUSTER_HOURLY_LIMITS])[0])
    if of_all:
        limits[_ALL] = HourlyLimits(
            launches=min((o.launches for o in of_all if o.launches is not None), default=None),
            usd=min((o.usd for o in of_all if o.usd is not None), default=None),
            removals=min((o.removals for o in of_all if o.removals is not None), default=None),
        )
    return limits


def _message(scope: str, had: str, allowed: str, name: str) -> str:
    if scope == _ALL:
        return (
            f"the hourly limit of all NodePools is reached: {had} in the last hour of {allowed} "
            f"(annotation {names.CLUSTER_HOURLY_LIMITS}: {name}=N on a NodePool sets another)"
        )
    return (
        f"the hourly limit of NodePool {scope} is reached: {had} in the last hour of {allowed} "
        f"(annotation {names.HOURLY_LIMITS}: {name}=N on it sets another)"
    )


def _period(now: datetime) -> int:
    return int(now.timestamp()) // _PERIOD
