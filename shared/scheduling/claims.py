"""From packed machines to the claims that are asked for.

A claim lists every type of its pool that holds its pods and daemons, cheapest first, so that the launch has a choice;
and states all that its pods need of a node, so that whatever comes up is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shared.api.labels import HOSTNAME, INSTANCE_TYPE, NODECLASS, NODEPOOL
from shared.scheduling.decision import MAX_INSTANCE_TYPES, Cheapest, PlannedClaim
from shared.scheduling.filling import holds, holds_each
from shared.scheduling.packing import fitting, prices, values_among, variety
from shared.scheduling.requirements import Requirements, both, expressions, only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from shared.api.kubernetes import NodeSelectorRequirement
    from shared.api.quantity import Resources
    from shared.scheduling.kinds import Judge
    from shared.scheduling.packing import Bin, Packer
    from shared.scheduling.pools import Market, Pool

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

_TINY = 1e-12
_AT_ONCE = 1024
"""So many machines are held against all rows at once; bounds the memory that takes."""


def settle(packer: Packer, *, strict: bool) -> None:
    """Moves every machine to the cheapest row that holds what is in it, of any pool of the same weight."""
    market, limits = packer.market, packer.limits
    bins = [b for b in packer.bins if b.reserved is None]
    special = [limits.limited(i) or bool(strict and p.min_values) for i, p in enumerate(market.pools)]
    cheapest = _cheapest(market, bins, [p for p, s in zip(market.pools, special, strict=True) if not s])
    picky = [(i, p) for i, (p, s) in enumerate(zip(market.pools, special, strict=True)) if s]
    for at, (bin_, price_now) in enumerate(zip(bins, prices(market, bins).tolist(), strict=True)):
        best = (price_now, bin_.row)
        if cheapest[at][0] < best[0] - _TINY:
            best = cheapest[at]
        weight = market.pools[market.pool_of[bin_.row]].weight
        for i, pool in picky:
            if pool.weight != weight:
                continue
            rows = fitting(market, pool, bin_.kinds, bin_.used, bin_.offerings, bin_.custom)
            if not len(rows) or (strict and not variety(market, pool, rows, bin_.offerings)):
                continue
            if limits.limited(i):
                same = i == market.pool_of[bin_.row]
                rows = rows[holds(-market.capacity[rows], -market.capacity[bin_.row])] if same else rows[:0]
                if not len(rows):
                    continue
            price = market.price[rows][:, bin_.offerings].min(1)
            first = int(np.lexsort((rows, price))[0])
            if price[first] < best[0] - _TINY:
                best = (float(price[first]), int(rows[first]))
        if best[1] != bin_.row:
            limits.give(bin_.row)
            bin_.row = best[1]
            limits.take(bin_.row)


def _cheapest(market: Market, bins: Sequence[Bin], pools: Sequence[Pool]) -> list[tuple[float, int]]:
    """The price and row of the cheapest of these pools' rows that holds each bin; inf where none does."""
    found = [(np.inf, -1)] * len(bins)
    for pool in pools:
        weighty = [i for i, b in enumerate(bins) if market.pools[market.pool_of[b.row]].weight == pool.weight]
        for members in _alike(weighty, bins).values():
            first = bins[members[0]]
            rows, price = _by_price(market, pool, first)
            if not len(rows):
                continue
            held = holds_each(market.free[rows], np.stack([bins[i].used for i in members]))
            at = held.argmax(1)
            for i, j, any_ in zip(members, at.tolist(), held[np.arange(len(at)), at].tolist(), strict=True):
                if any_ and price[j] < found[i][0] - _TINY:
                    found[i] = (float(price[j]), int(rows[j]))
    return found


def _alike(members: Iterable[int], bins: Sequence[Bin]) -> dict[object, list[int]]:
    """The bins that may come from the same rows in the same offerings, by number."""
    found: dict[object, list[int]] = {}
    for i in members:
        b = bins[i]
        found.setdefault((b.masks, b.offerings.tobytes(), b.custom), []).append(i)
    return {(key, n): some for key, many in found.items() for n, some in enumerate(_slices(many))}


def _slices(members: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(members), _AT_ONCE):
        yield members[start : start + _AT_ONCE]


def _by_price(market: Market, pool: Pool, bin_: Bin) -> tuple[Ints, Floats]:
    """The pool's rows that what is in the bin may go to, whatever its size, cheapest first; and their prices."""
    rows = fitting(market, pool, bin_.kinds, np.zeros_like(bin_.used), bin_.offerings, bin_.custom)
    price = market.price[rows][:, bin_.offerings].min(1, initial=np.inf)
    order = np.argsort(price, kind="stable")
    return rows[order], price[order]


def keep_limits(packer: Packer) -> list[Bin]:
    """Bounds what the claims of limited pools may be, where all that fit would pass a limit.

    A claim that can't be had so, as too few types are left for its pool's minValues, comes back.
    """
    market, limits = packer.market, packer.limits
    broken: list[Bin] = []
    for number, pool in enumerate(market.pools):
        mine = [b for b in packer.bins if b.reserved is None and market.pool_of[b.row] == number]
        if not mine or not limits.counted(number):
            continue
        most = limits.most(np.arange(pool.rows.start, pool.rows.stop))
        if limits.affordable_size(number, most * len(mine)):
            continue
        rows = [fitting(market, pool, b.kinds, b.used, b.offerings, b.custom) for b in mine]
        sizes = [limits.most(np.array([b.row])) for b in mine]
        more = sum((limits.most(r) - size for r, size in zip(rows, sizes, strict=True)), np.zeros_like(most))
        if limits.affordable_size(number, more):
            continue
        for bin_, fit, size in zip(mine, rows, sizes, strict=True):
            bound = _bound(packer, number, bin_, fit)
            if bound is None:
                broken.append(bin_)
                bound = size
            limits.reserve(number, bound - size)
            bin_.reserved = bound
    return broken


def loosen(packer: Packer) -> None:
    """Takes the bounds off again, so that machines may change; but where minValues need them."""
    market, limits = packer.market, packer.limits
    for bin_ in packer.bins:
        number = int(market.pool_of[bin_.row])
        if bin_.reserved is not None and not (packer.strict and market.pools[number].min_values):
            limits.release(number, bin_.reserved)
            limits.take(bin_.row)
            bin_.reserved = None


def _bound(packer: Packer, number: int, bin_: Bin, rows: Ints) -> Ints | None:
    """The least that a machine must be allowed to be so that its claim keeps its pool's minValues."""
    market, limits = packer.market, packer.limits
    pool = market.pools[number]
    size = limits.most(np.array([bin_.row]))
    if not packer.strict or not pool.min_values:
        return size
    larger = rows[np.argsort(limits.share(number, rows), kind="stable")]
    for row in (bin_.row, *larger.tolist()):
        most = limits.most(np.array([bin_.row, row]))
        if limits.affordable_size(number, most - size) and variety(
            market, pool, rows[limits.sizes(rows, most)], bin_.offerings
        ):
            return most
    return None


@dataclass(frozen=True)
class _Listing:
    """What claims have in common that list the same rows for pods that ask for the same."""

    instance_types: tuple[str, ...]
    requirements: tuple[NodeSelectorRequirement, ...]
    labels: Mapping[str, str]
    cheapest: Cheapest
    daemons: Ints


def claims_of(packer: Packer, judge: Judge, expand: Callable[[Iterable[str]], list[str]]) -> list[PlannedClaim]:
    """The claim of each machine, in their order, each within its bound if it has one."""
    market, bins = judge.market, packer.bins
    made: dict[int, PlannedClaim] = {}
    listings: dict[object, _Listing] = {}
    for number, pool in enumerate(market.pools):
        mine = [i for i, b in enumerate(bins) if market.pool_of[b.row] == number]
        for alike, members in _alike(mine, bins).items():
            rows, _ = _by_price(market, pool, bins[members[0]])
            held = holds_each(market.free[rows], np.stack([bins[i].used for i in members]))
            for i, holding in zip(members, held, strict=True):
                bin_ = bins[i]
                fits = rows[holding]
                if bin_.reserved is not None:
                    fits = fits[packer.limits.sizes(fits, bin_.reserved)]
                listed, enough = _listed(market, pool, fits, bin_.offerings)
                asked = frozenset([item.kind.asked for item, _ in bin_.content])
                key = (number, alike, listed.tobytes(), asked)
                listing = listings.get(key)
                if listing is None:
                    listing = listings[key] = _listing(market, pool, bin_, listed)
                made[i] = PlannedClaim(
                    node_pool=pool.name,
                    pods=tuple(sorted(expand(pod for _, pods in bin_.content for pod in pods))),
                    instance_types=listing.instance_types,
                    requirements=listing.requirements,
                    requests=_requests(market, bin_.used + listing.daemons),
                    labels=listing.labels,
                    taints=pool.taints,
                    cheapest=listing.cheapest,
                    min_values_relaxed=not enough,
                )
    return [made[i] for i in range(len(bins))]


def _listing(market: Market, pool: Pool, bin_: Bin, listed: Ints) -> _Listing:
    requirements: Requirements = dict(pool.template)
    for kind in bin_.kinds:
        # Of a label that no node of the pool has, absence needs no saying.
        requirements = both(
            requirements,
            {k: v for k, v in kind.requirements.items() if k in requirements or not v.absent or pool.catalog.knows(k)},
        )
    requirements.pop(HOSTNAME, None)
    names = tuple(pool.catalog.names[t] for t in market.type_of[listed].tolist())
    offers = np.where(bin_.offerings, market.price[int(listed[0])], np.inf)
    offering = dict(market.offerings[int(offers.argmin())])
    requirements = both(requirements, {INSTANCE_TYPE: only(*names)})
    return _Listing(
        instance_types=names,
        requirements=tuple(expressions(requirements, pool.min_values)),
        labels=_labels(pool, requirements),
        cheapest=Cheapest(
            instance_type=names[0],
            zone=offering["topology.kubernetes.io/zone"],
            capacity_type=offering["karpenter.sh/capacity-type"],
            price=float(offers.min()),
        ),
        daemons=market.daemons[listed].max(0),
    )


def _listed(market: Market, pool: Pool, rows: Ints, offerings: NDArray[np.bool_]) -> tuple[Ints, bool]:
    """The rows a claim lists: the cheapest, but as many different values as the pool asks for."""
    listed = rows[:MAX_INSTANCE_TYPES]
    if variety(market, pool, listed, offerings):
        return listed, True
    if not variety(market, pool, rows, offerings):
        return listed, False
    chosen = _varied(market, pool, rows, offerings)
    enough = len(chosen) <= MAX_INSTANCE_TYPES
    for row in rows.tolist():
        if len(chosen) >= MAX_INSTANCE_TYPES:
            break
        chosen.add(row)
    return np.array([row for row in rows.tolist() if row in chosen][:MAX_INSTANCE_TYPES], np.int64), enough


def _varied(market: Market, pool: Pool, rows: Ints, offerings: NDArray[np.bool_]) -> set[int]:
    """Few rows with as many values of all labels as the pool asks for: what brings most first, then the cheapest."""
    has = {
        row: {key: values_among(market, pool, np.array([row]), offerings, key) for key in pool.min_values}
        for row in rows.tolist()
    }
    seen: dict[str, set[str]] = {key: set() for key in pool.min_values}
    chosen: set[int] = set()
    while any(len(seen[key]) < least for key, least in pool.min_values.items()):
        best = max(
            (row for row in has if row not in chosen),
            key=lambda row: sum(
                min(len(has[row][key] - seen[key]), least - len(seen[key]))
                for key, least in pool.min_values.items()
                if len(seen[key]) < least
            ),
        )
        chosen.add(best)
        for key in seen:
            seen[key] |= has[best][key]
    return chosen


def _requests(market: Market, total: Ints) -> Resources:
    return {r: int(v) for r, v in zip(market.resources, total.tolist(), strict=True) if v}


def _labels(pool: Pool, requirements: Requirements) -> dict[str, str]:
    """The labels that the node gets besides those of its type and offering: one value of each that the pool defines."""
    found = dict(pool.labels)
    for key in sorted(pool.template):
        if key == HOSTNAME or pool.catalog.knows(key) or key not in requirements:
            continue
        value = requirements[key].any_value()
        if value is not None:
            found[key] = value
    found[NODEPOOL] = pool.name
    if NODECLASS in pool.template:
        found[NODECLASS] = next(iter(pool.template[NODECLASS].values))
    return found
