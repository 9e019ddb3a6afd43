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
from shared.scheduling.rules.requirements import Requirements, both, expressions, only
from shared.scheduling.solver.fit import holds_each
from shared.scheduling.solver.packing import values_among, variety
from shared.scheduling.solver.settling import bins_alike, by_price

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from shared.api.kubernetes import NodeSelectorRequirement
    from shared.api.quantity import Resources
    from shared.scheduling.solver.packing import Bin, Packer
    from shared.scheduling.state.launch_options import Market, Pool
    from shared.scheduling.topology.feasibility import Judge

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


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
        for alike, members in bins_alike(mine, bins).items():
            rows, _ = by_price(market, pool, bins[members[0]])
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
