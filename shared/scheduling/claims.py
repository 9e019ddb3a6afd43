"""From packed machines to the claims that are asked for.

A claim lists every type of its pool that holds its pods and daemons, cheapest first, so that the launch has a choice;
and states all that its pods need of a node, so that whatever comes up is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.api.labels import HOSTNAME, INSTANCE_TYPE, NODECLASS, NODEPOOL
from shared.scheduling.decision import MAX_INSTANCE_TYPES, Cheapest, PlannedClaim
from shared.scheduling.packing import fitting, values_among, variety
from shared.scheduling.requirements import Requirements, both, expressions, only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from shared.api.quantity import Resources
    from shared.scheduling.kinds import Judge
    from shared.scheduling.packing import Bin, Packer
    from shared.scheduling.pools import Market, Pool

    Ints = NDArray[np.int64]


def settle(packer: Packer, *, strict: bool) -> None:
    """Moves every machine to the cheapest row that holds what is in it, of any pool of the same weight."""
    market, limits = packer.market, packer.limits
    for bin_ in packer.bins:
        kinds = bin_.kinds
        weight = market.pools[market.pool_of[bin_.row]].weight
        best = (bin_.price(market), bin_.row)
        for i, pool in enumerate(market.pools):
            if pool.weight != weight:
                continue
            rows = fitting(market, pool, kinds, bin_.used, bin_.offerings, bin_.custom)
            if not len(rows) or (strict and not variety(market, pool, rows, bin_.offerings)):
                continue
            if limits.limited(i):
                same = i == market.pool_of[bin_.row]
                rows = rows[(market.capacity[rows] <= market.capacity[bin_.row]).all(1)] if same else rows[:0]
                if not len(rows):
                    continue
            price = market.price[rows][:, bin_.offerings].min(1)
            at = int(np.lexsort((rows, price))[0])
            if price[at] < best[0] - 1e-12:
                best = (float(price[at]), int(rows[at]))
        if best[1] != bin_.row:
            limits.give(bin_.row)
            bin_.row = best[1]
            limits.take(bin_.row)


def near_limits(packer: Packer) -> frozenset[int]:
    """The pools whose claims may list only types no larger than the chosen, as with all that fit they pass a limit."""
    market, limits = packer.market, packer.limits
    over: dict[int, Ints] = {}
    for bin_ in packer.bins:
        number = int(market.pool_of[bin_.row])
        if limits.limited(number):
            pool = market.pools[number]
            rows = fitting(market, pool, bin_.kinds, bin_.used, bin_.offerings, bin_.custom)
            more = market.capacity[rows].max(0) - market.capacity[bin_.row]
            over[number] = over.get(number, 0) + more
    return frozenset(n for n, more in over.items() if (more > limits.left[n, :-1]).any())


def claim_of(
    bin_: Bin, judge: Judge, expand: Callable[[Iterable[str]], list[str]], trimmed: frozenset[int] = frozenset()
) -> PlannedClaim:
    """The claim of one machine; in ``trimmed`` pools it lists no type larger than the chosen."""
    market = judge.market
    number = int(market.pool_of[bin_.row])
    pool = market.pools[number]
    kinds = bin_.kinds
    rows = fitting(market, pool, kinds, bin_.used, bin_.offerings, bin_.custom)
    if number in trimmed:
        rows = rows[(market.capacity[rows] <= market.capacity[bin_.row]).all(1)]
    price = market.price[rows][:, bin_.offerings].min(1)
    rows = rows[np.lexsort((rows, price))]
    listed, enough = _listed(market, pool, rows, bin_.offerings)
    requirements: Requirements = dict(pool.template)
    for kind in kinds:
        # Of a label that no node of the pool has, absence needs no saying.
        requirements = both(
            requirements,
            {k: v for k, v in kind.requirements.items() if k in requirements or not v.absent or pool.catalog.knows(k)},
        )
    requirements.pop(HOSTNAME, None)
    names = tuple(pool.catalog.names[t] for t in market.type_of[listed].tolist())
    first = int(listed[0])
    offers = np.where(bin_.offerings, market.price[first], np.inf)
    offering = dict(market.offerings[int(offers.argmin())])
    zone, capacity_type = offering["topology.kubernetes.io/zone"], offering["karpenter.sh/capacity-type"]
    requirements = both(requirements, {INSTANCE_TYPE: only(*names)})
    return PlannedClaim(
        node_pool=pool.name,
        pods=tuple(sorted(expand(pod for _, pods in bin_.content for pod in pods))),
        instance_types=names,
        requirements=tuple(expressions(requirements, pool.min_values)),
        requests=_requests(market, bin_, listed),
        labels=_labels(pool, requirements),
        taints=pool.taints,
        cheapest=Cheapest(instance_type=names[0], zone=zone, capacity_type=capacity_type, price=float(offers.min())),
        min_values_relaxed=not enough,
    )


def _listed(market: Market, pool: Pool, rows: Ints, offerings: NDArray[np.bool_]) -> tuple[Ints, bool]:
    """The rows a claim lists: the cheapest, but as many different values as the pool asks for."""
    listed = rows[:MAX_INSTANCE_TYPES]
    if variety(market, pool, listed, offerings):
        return listed, True
    if not variety(market, pool, rows, offerings):
        return listed, False
    needed: list[int] = []
    for key, least in sorted(pool.min_values.items()):
        seen: set[str] = set()
        for row in rows.tolist():
            found = values_among(market, pool, np.array([row]), offerings, key) - seen
            if found and len(seen) < least:
                seen |= found
                needed.append(row)
    chosen = set(needed)
    for row in rows.tolist():
        if len(chosen) >= MAX_INSTANCE_TYPES:
            break
        chosen.add(row)
    return np.array([row for row in rows.tolist() if row in chosen], np.int64), True


def _requests(market: Market, bin_: Bin, rows: Ints) -> Resources:
    total = bin_.used + market.daemons[rows].max(0)
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
