"""From packed machines to the claims that are asked for.

A claim lists every type of its pool that holds its pods and daemons, cheapest first, so that the launch has a choice;
and states all that its pods need of a node, so that whatever comes up is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shared.api.labels import HOSTNAME, INSTANCE_TYPE, NODECLASS, NODEPOOL
from shared.scheduling.decision import MAX_INSTANCE_TYPES, CheapestOffering, PlannedNodeClaim
from shared.scheduling.rules.requirements import Requirements, both, expressions, only
from shared.scheduling.solver.fit import holds_each
from shared.scheduling.solver.settling import bins_alike, by_price
from shared.scheduling.state.min_values import distinct_values, satisfies_min_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from shared.api.kubernetes import NodeSelectorRequirement
    from shared.api.quantity import Resources
    from shared.scheduling.solver.packing import Bin, Packer
    from shared.scheduling.state.launch_options import LaunchOptions, NodeClaimTemplate
    from shared.scheduling.topology.feasibility import FeasibilityChecker

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Listing:
    """What claims have in common that list the same rows for pods that ask for the same."""

    instance_types: tuple[str, ...]
    requirements: tuple[NodeSelectorRequirement, ...]
    labels: Mapping[str, str]
    cheapest: CheapestOffering
    daemons: Ints


def claims_of(
    packer: Packer, checker: FeasibilityChecker, expand: Callable[[Iterable[str]], list[str]]
) -> list[PlannedNodeClaim]:
    """The claim of each machine, in their order, each within its bound if it has one."""
    launch_options, bins = checker.launch_options, packer.bins
    made: dict[int, PlannedNodeClaim] = {}
    listings: dict[object, _Listing] = {}
    for number, pool in enumerate(launch_options.templates):
        mine = [i for i, b in enumerate(bins) if launch_options.template_of[b.option] == number]
        for alike, members in bins_alike(mine, bins).items():
            options, _ = by_price(launch_options, pool, bins[members[0]])
            held = holds_each(launch_options.free[options], np.stack([bins[i].used for i in members]))
            for i, holding in zip(members, held, strict=True):
                bin_ = bins[i]
                fits = options[holding]
                if bin_.reserved is not None:
                    fits = fits[packer.limits.sizes(fits, bin_.reserved)]
                listed, enough = _listed(launch_options, pool, fits, bin_.offerings)
                asked = frozenset([item.feasibility.requirements_key for item, _ in bin_.content])
                key = (number, alike, listed.tobytes(), asked)
                listing = listings.get(key)
                if listing is None:
                    listing = listings[key] = _listing(launch_options, pool, bin_, listed)
                made[i] = PlannedNodeClaim(
                    node_pool=pool.node_pool,
                    pods=tuple(sorted(expand(pod for _, pods in bin_.content for pod in pods))),
                    instance_types=listing.instance_types,
                    requirements=listing.requirements,
                    requests=_requests(launch_options, bin_.used + listing.daemons),
                    labels=listing.labels,
                    taints=pool.taints,
                    cheapest=listing.cheapest,
                    min_values_relaxed=not enough,
                )
    return [made[i] for i in range(len(bins))]


def _listing(launch_options: LaunchOptions, pool: NodeClaimTemplate, bin_: Bin, listed: Ints) -> _Listing:
    requirements: Requirements = dict(pool.requirements)
    for feasibility in bin_.feasibilities:
        # Of a label that no node of the pool has, absence needs no saying.
        requirements = both(
            requirements,
            {
                k: v
                for k, v in feasibility.requirements.items()
                if k in requirements or not v.absent or pool.catalog.knows(k)
            },
        )
    requirements.pop(HOSTNAME, None)
    names = tuple(pool.catalog.names[t] for t in launch_options.type_of[listed].tolist())
    offers = np.where(bin_.offerings, launch_options.price[int(listed[0])], np.inf)
    offering = dict(launch_options.offerings[int(offers.argmin())])
    requirements = both(requirements, {INSTANCE_TYPE: only(*names)})
    return _Listing(
        instance_types=names,
        requirements=tuple(expressions(requirements, pool.min_values)),
        labels=_labels(pool, requirements),
        cheapest=CheapestOffering(
            instance_type=names[0],
            zone=offering["topology.kubernetes.io/zone"],
            capacity_type=offering["karpenter.sh/capacity-type"],
            price=float(offers.min()),
        ),
        daemons=launch_options.daemon_requests[listed].max(0),
    )


def _listed(
    launch_options: LaunchOptions, pool: NodeClaimTemplate, options: Ints, offerings: NDArray[np.bool_]
) -> tuple[Ints, bool]:
    """The rows a claim lists: the cheapest, but as many different values as the pool asks for."""
    listed = options[:MAX_INSTANCE_TYPES]
    if satisfies_min_values(launch_options, pool, listed, offerings):
        return listed, True
    if not satisfies_min_values(launch_options, pool, options, offerings):
        return listed, False
    chosen = _varied(launch_options, pool, options, offerings)
    enough = len(chosen) <= MAX_INSTANCE_TYPES
    for option in options.tolist():
        if len(chosen) >= MAX_INSTANCE_TYPES:
            break
        chosen.add(option)
    return np.array([option for option in options.tolist() if option in chosen][:MAX_INSTANCE_TYPES], np.int64), enough


def _varied(
    launch_options: LaunchOptions, pool: NodeClaimTemplate, options: Ints, offerings: NDArray[np.bool_]
) -> set[int]:
    """Few rows with as many values of all labels as the pool asks for: what brings most first, then the cheapest."""
    has = {
        option: {
            key: distinct_values(launch_options, pool, np.array([option]), offerings, key) for key in pool.min_values
        }
        for option in options.tolist()
    }
    seen: dict[str, set[str]] = {key: set() for key in pool.min_values}
    chosen: set[int] = set()
    while any(len(seen[key]) < least for key, least in pool.min_values.items()):
        best = max(
            (option for option in has if option not in chosen),
            key=lambda option: sum(
                min(len(has[option][key] - seen[key]), least - len(seen[key]))
                for key, least in pool.min_values.items()
                if len(seen[key]) < least
            ),
        )
        chosen.add(best)
        for key in seen:
            seen[key] |= has[best][key]
    return chosen


def _requests(launch_options: LaunchOptions, total: Ints) -> Resources:
    return {r: int(v) for r, v in zip(launch_options.resources, total.tolist(), strict=True) if v}


def _labels(pool: NodeClaimTemplate, requirements: Requirements) -> dict[str, str]:
    """The labels that the node gets besides those of its type and offering: one value of each that the pool defines."""
    found = dict(pool.labels)
    for key in sorted(pool.requirements):
        if key == HOSTNAME or pool.catalog.knows(key) or key not in requirements:
            continue
        value = requirements[key].any_value()
        if value is not None:
            found[key] = value
    found[NODEPOOL] = pool.node_pool
    if NODECLASS in pool.requirements:
        found[NODECLASS] = next(iter(pool.requirements[NODECLASS].values))
    return found
