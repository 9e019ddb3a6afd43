"""Prices of limited resources, which show before a limit is hit.

Pods come over seconds, in several decisions. If the first get the cheapest nodes, with more of a limited resource than
the pods need, the limit leaves the last ones out. So while a limit is likely to be reached, a node costs what EC2 asks
and a price for what it takes of the limit. That is the shadow price of the limit: like the dual variable of a linear
program it is zero while the limit doesn't bind, and rises with its use. The online packing of Buchbinder and Naor (The
Design of Competitive Online Algorithms via a Primal-Dual Approach, 2009) also lets prices rise with the used share.

What is used, and a multiple of what is pending now, is the expected use. Only pods count as pending that no NodePool
without this limit may run. Nodes as such (the limit ``nodes``) have no price.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.api.nodepool import node_group_of
from shared.api.quantity import add
from shared.base.struct import Struct, with_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.state.launch_options import LaunchOptions
    from shared.scheduling.state.state_nodes import StateNodes
    from shared.scheduling.topology.feasibility import FeasibilityChecker
    from shared.scheduling.topology.pod_groups import PodGroup, SizedPods

    Bools = NDArray[np.bool_]
    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

_EXPECTED = 5
"""How many times the pending pods are expected in all: a decision sees about a second of a burst."""
_FREE_SHARE = 0.5
"""The expected use, as a share of the limit, up to which a limited resource has no price."""
_STEEPNESS = 8.0
"""By how much the price grows while the expected use grows by the whole limit, in least prices of the resource."""
_GREATEST = 12.0
"""The greatest price of a limited resource, in least prices of the resource."""


def with_limit_prices(checker: FeasibilityChecker, groups: Sequence[tuple[PodGroup, list[SizedPods]]]) -> LaunchOptions:
    """The launch options with prices of limited resources; the same object if no limit is likely to be reached."""
    launch_options = checker.launch_options
    limits = list(_limits(launch_options, checker.state_nodes))
    if not limits:
        return launch_options
    demand = _Demand(checker, groups)
    surcharge = np.zeros(len(launch_options.price))
    for limit in limits:
        pending = demand.of(limit)
        if pending > 0:
            share = (limit.used + _EXPECTED * pending) / max(limit.amount, 1)
            factor = min(max(0.0, (share - _FREE_SHARE) * _STEEPNESS), _GREATEST)
            size = launch_options.capacity[:, limit.resource] * limit.options
            surcharge += factor * _least_price(launch_options, size) * size
    if not surcharge.any():
        return launch_options
    return with_fields(
        launch_options,
        price=launch_options.price + surcharge[:, None],
        offered_price=launch_options.price,
        # what was found with other prices doesn't hold
        fitting_options={},
        undominated_options={},
    )


class _Limit(Struct, eq=False):
    """A limit: the column of its resource, its amount, what is used of it, and the launch options that it holds for."""

    resource: int
    amount: int
    used: int
    options: Bools


def _limits(launch_options: LaunchOptions, state_nodes: StateNodes) -> Iterator[_Limit]:
    """The limits of NodePools, and those over all of them."""
    for template in launch_options.templates:
        if template.limits:
            options = np.zeros(len(launch_options.price), np.bool_)
            options[template.options] = True
            usage = state_nodes.usage.get(template.node_pool, {})
            yield from _limits_of(template.limits, usage, options, launch_options)
    if launch_options.cluster_limits:
        counted = np.array([not node_group_of(t.node_pool) for t in launch_options.templates], np.bool_)
        usage = add({}, *(u for pool, u in state_nodes.usage.items() if not node_group_of(pool)))
        yield from _limits_of(launch_options.cluster_limits, usage, counted[launch_options.template_of], launch_options)


def _limits_of(
    limits: Mapping[str, int], usage: Mapping[str, int], options: Bools, launch_options: LaunchOptions
) -> Iterator[_Limit]:
    for name, amount in sorted(limits.items()):
        if name in launch_options.resources and options.any():
            yield _Limit(launch_options.resources.index(name), amount, usage.get(name, 0), options)


def _least_price(launch_options: LaunchOptions, size: Ints) -> float:
    """The least price of one unit of a resource, USD per hour; ``size`` is what each launch option has of it."""
    price = launch_options.price.min(1, initial=np.inf)
    has = size > 0
    return float((price[has] / size[has]).min(initial=np.inf)) if has.any() else 0.0


class _Demand:
    """What pending pods take of limited resources on the nodes that are cheapest for them."""

    def __init__(self, checker: FeasibilityChecker, groups: Sequence[tuple[PodGroup, list[SizedPods]]]) -> None:
        self._launch_options = checker.launch_options
        self._price = checker.launch_options.price.min(1, initial=np.inf)
        self._free = np.maximum(checker.launch_options.free, 1).astype(np.float64)
        self._sizes_by_options: dict[bytes, tuple[Bools, dict[bytes, tuple[Floats, int]]]] = {}
        for group, sizes in groups:
            options = _suitable(checker, group)
            _, counted = self._sizes_by_options.setdefault(options.tobytes(), (options, {}))
            for sized in sizes:
                requests = self._requests(sized)
                _, count = counted.get(requests.tobytes(), (requests, 0))
                counted[requests.tobytes()] = (requests, count + len(sized.pods))

    def of(self, limit: _Limit) -> float:
        """What the pods take of a limit that no launch option without it suits."""
        total = 0.0
        for suitable, sizes in self._sizes_by_options.values():
            if (suitable & limit.options).any() and not (suitable & ~limit.options).any():
                requests = np.stack([r for r, _ in sizes.values()])
                counts = np.array([n for _, n in sizes.values()])
                total += float(counts @ self._taken(np.flatnonzero(suitable), requests, limit.resource))
        return total

    def _taken(self, options: Ints, requests: Floats, resource: int) -> Floats:
        """What a pod of each size takes of a resource on its cheapest node, in proportion to its share of the node."""
        share = np.zeros((len(requests), len(options)))
        for r in np.flatnonzero(requests.any(0)).tolist():
            np.maximum(share, requests[:, r, None] / self._free[None, options, r], out=share)
        price = np.where(share > 1, np.inf, share * self._price[options])
        cheapest = price.argmin(1)
        rows = np.arange(len(requests))
        taken = share[rows, cheapest] * self._launch_options.capacity[options[cheapest], resource]
        result: Floats = np.where(np.isfinite(price[rows, cheapest]), taken, 0.0)
        return result

    def _requests(self, sized: SizedPods) -> Floats:
        return np.array([sized.requests.get(name, 0) for name in self._launch_options.resources], np.float64)


def _suitable(checker: FeasibilityChecker, group: PodGroup) -> Bools:
    """The launch options that suit pods of the group by labels and taints, whatever their size."""
    suitable = np.zeros(len(checker.launch_options.price), np.bool_)
    for alternative in group.alternatives:
        suitable |= checker.check(alternative, group.tolerations, tolerate_prefer_no_schedule=True)[0]
    return suitable
