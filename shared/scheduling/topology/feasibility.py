"""What a class of pods may be placed on, judged against everything at once.

A kind is a class with its choices made: which preferences still count, which alternative of its affinity, which
topology domains. Its masks over rows, offerings and existing places are all that packing looks at.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from shared.api.taints import EFFECTS, REPELLING, untolerated
from shared.scheduling.rules.requirements import Requirements, ValueSet, both, contradiction, only, signature
from shared.scheduling.state.launch_options import ports_clash

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from shared.api.kubernetes import Toleration
    from shared.scheduling.state.launch_options import HostPort, Market
    from shared.scheduling.state.state_nodes import Inventory

    BoolArray = NDArray[np.bool_]
    Pins = tuple[tuple[str, str], ...]

NO_CAP = 1 << 30


@dataclass(frozen=True, eq=False)
class HostRules:
    """What a pod counts for, and bears, on one host: term to number of pods."""

    match: Mapping[int, int] = field(default_factory=dict)
    cap: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def key(self) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
        """A hashable form."""
        return tuple(sorted(self.match.items())), tuple(sorted(self.cap.items()))


@dataclass(frozen=True, eq=False)
class Kind:
    """Where pods of one class may go.

    ``custom`` numbers, by row, what they ask of labels that only pools define; ``mask_key`` is equal for kinds that may
    go to the same machines, ``asked`` for those of equal requirements.
    """

    requirements: Requirements
    rows: BoolArray
    custom: NDArray[np.int64]
    offerings: BoolArray
    places: BoolArray
    host: HostRules
    ports: frozenset[HostPort]
    mounted: frozenset[tuple[str, str]]
    mask_key: int
    asked: int = 0

    @cached_property
    def without_rules(self) -> Kind:
        """The kind for machines on which nobody holds a rule about hosts."""
        return replace(self, host=HostRules())

    @property
    def buyable(self) -> bool:
        """Whether there is any machine to buy for it."""
        return bool(self.rows.any())


class Judge:
    """Judges requirements against the market and the inventory; remembers, as classes share most of them."""

    def __init__(self, market: Market, inventory: Inventory) -> None:
        self.market = market
        self.inventory = inventory
        self._customs: dict[tuple[tuple[str, ValueSet], ...], int] = {(): 0}
        self._parts: dict[tuple[int, str, ValueSet], tuple[BoolArray | None, bool, ValueSet | None]] = {}
        self._tolerated: dict[tuple[tuple[tuple[str, str, str, str], ...], bool], tuple[BoolArray, BoolArray]] = {}
        self._costs: dict[tuple[int, bytes], float] = {}
        self._masks: dict[tuple[bytes, bytes, bytes], int] = {}
        self._asked: dict[object, int] = {}
        self._judged: dict[object, tuple[BoolArray, NDArray[np.int64], BoolArray, BoolArray]] = {}

    def judge(
        self, requirements: Requirements, tolerations: tuple[Toleration, ...], *, soft: bool
    ) -> tuple[BoolArray, NDArray[np.int64], BoolArray, BoolArray]:
        """Rows, what is asked of custom labels by row, offerings, and places. ``soft``: PreferNoSchedule is no bar."""
        key = (signature(requirements), tolerations_key(tolerations), soft)
        found = self._judged.get(key)
        if found is None:
            found = self._judged[key] = self._judge(requirements, tolerations, soft=soft)
        return found

    def _judge(
        self, requirements: Requirements, tolerations: tuple[Toleration, ...], *, soft: bool
    ) -> tuple[BoolArray, NDArray[np.int64], BoolArray, BoolArray]:
        market = self.market
        pools, places = self.tolerated(tolerations, soft=soft)
        rows = np.zeros(len(market.pool_of), np.bool_)
        custom = np.zeros(len(market.pool_of), np.int64)
        offerings = np.ones(len(market.offerings), np.bool_)
        for key, allowed in requirements.items():
            if key in market.columns:
                offerings &= market.offerings_allowed(key, allowed)
        for i, pool in enumerate(market.pools):
            if not pools[i]:
                continue
            mask = np.ones(len(pool.types), np.bool_)
            narrowed: list[tuple[str, ValueSet]] = []
            for key, allowed in sorted(requirements.items()):
                if key in market.columns:
                    continue
                if pool.catalog.knows(key):
                    mask &= pool.catalog.types_allowed(key, allowed)[pool.types]
                    continue
                state = pool.state(key)
                met = state & allowed
                if met.empty:
                    break
                if met != state:
                    narrowed.append((key, met))
            else:
                rows[pool.rows] = mask & np.isfinite(market.price[pool.rows][:, offerings]).any(1)
                custom[pool.rows] = self._customs.setdefault(tuple(narrowed), len(self._customs))
        return rows, custom, offerings, places & self.inventory.allowed(requirements)

    def tolerated(self, tolerations: tuple[Toleration, ...], *, soft: bool) -> tuple[BoolArray, BoolArray]:
        """Which pools' and which places' taints are tolerated."""
        key = (tolerations_key(tolerations), soft)
        found = self._tolerated.get(key)
        if found is None:
            effects = REPELLING if soft else EFFECTS
            carried = {*(p.taints for p in self.market.pools), *(p.taints for p in self.inventory.places)}
            by_taints = {t: untolerated(tolerations, t, effects=effects) is None for t in carried}
            found = self._tolerated[key] = (
                np.fromiter((by_taints[p.taints] for p in self.market.pools), np.bool_, len(self.market.pools)),
                np.fromiter((by_taints[p.taints] for p in self.inventory.places), np.bool_, len(self.inventory.places)),
            )
        return found

    def cost(self, kind: Kind, requests: NDArray[np.int64]) -> float:
        """The least share of a machine's price that a pod of this size takes, USD per hour; inf if none fits."""
        key = (kind.mask_key, requests.tobytes())
        found = self._costs.get(key)
        if found is None:
            found = self._costs[key] = self._cost(kind, requests)
        return found

    def _cost(self, kind: Kind, requests: NDArray[np.int64]) -> float:
        if not kind.buyable:
            return float("inf")
        bought = self.market.price[kind.rows][:, kind.offerings].min(1)
        needed = np.flatnonzero(requests)
        share = (requests[needed] / np.maximum(self.market.free[kind.rows][:, needed], 1)).max(1)
        share[share > 1] = np.inf
        return float((bought * share).min())

    def custom_values(self, number: int) -> Mapping[str, ValueSet]:
        """What a number of ``custom`` stands for."""
        return dict(list(self._customs)[number])

    def _taken(self, ports: frozenset[HostPort]) -> BoolArray:
        """The rows on which a daemon has one of these ports."""
        found = np.zeros(len(self.market.pool_of), np.bool_)
        for pool in self.market.pools:
            for daemon_ports, runs in pool.daemon_ports:
                if ports_clash(ports, daemon_ports):
                    found[pool.rows] |= runs
        return found

    def kind(
        self,
        requirements: Requirements,
        tolerations: tuple[Toleration, ...],
        host: HostRules,
        *,
        soft: bool,
        pins: Pins = (),
        ports: frozenset[HostPort] = frozenset(),
        mounted: frozenset[tuple[str, str]] = frozenset(),
    ) -> Kind | None:
        """The kind of these requirements within these domains; None where they contradict each other."""
        pinned = both(requirements, {key: only(value) for key, value in pins}) if pins else requirements
        if contradiction(pinned) is not None:
            return None
        rows, custom, offerings, places = self.judge(pinned, tolerations, soft=soft)
        if ports:
            rows = rows & ~self._taken(ports)
        masks = (rows.tobytes(), custom.tobytes(), offerings.tobytes())
        number = self._masks.setdefault(masks, len(self._masks))
        asked = self._asked.setdefault(signature(pinned), len(self._asked))
        return Kind(pinned, rows, custom, offerings, places, host, ports, mounted, number, asked)


def tolerations_key(tolerations: tuple[Toleration, ...]) -> tuple[tuple[str, str, str, str], ...]:
    """A hashable form of tolerations, the same whatever their order."""
    return tuple(sorted((t.key, t.operator, t.value, t.effect) for t in tolerations))
