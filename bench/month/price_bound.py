"""The least that any nodes for a trace's pods can cost: a covering linear program for each five minutes.

A pod counts while it exists for the whole step and was created two minutes before it, so that it surely has a node.
Only sums of requests must fit (:mod:`bench.lp_lower_bound`), on fractions of nodes at their cheapest offering.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bench.lp_lower_bound import covering
from bench.month.catalog import DEFAULT_POOL, GPU_POOL, POOLS, RESOURCES, size_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.month.catalog import Catalog
    from bench.month.load_trace import Trace

STEP = 300
_WAIT = 120


def lower_bound(trace: Trace, catalog: Catalog, *, seconds: int) -> list[float]:
    """USD per hour of each step of :data:`STEP` seconds."""
    rates = np.zeros(seconds // STEP)
    for pool, need in zip(POOLS, needs(trace, seconds=seconds), strict=True):
        rates += _rates(need, catalog, pool)
    return [float(rate) for rate in rates]


def needs(trace: Trace, *, seconds: int, step: int = STEP) -> NDArray[np.float64]:
    """The summed requests of the pods that surely have a node, by pool, step (of ``step`` seconds) and resource."""
    steps = seconds // step
    change = np.zeros((len(POOLS), steps + 1, len(RESOURCES)))
    for pod in trace.pods:
        pool = POOLS.index(GPU_POOL if pod.gpus else DEFAULT_POOL)
        first = -(-(pod.created + _WAIT) // step)
        last = min(pod.deleted // step, steps)
        if first < last:
            size = size_of(pod.cpu, pod.memory, pod.gpus)
            change[pool, first] += size
            change[pool, last] -= size
    return np.cumsum(change, axis=1)[:, :steps]


def _rates(need: NDArray[np.float64], catalog: Catalog, pool: str) -> list[float]:
    offerings = catalog.offerings[pool]
    capacity, price = offerings.free.astype(np.float64), offerings.price.min((1, 2))
    resources = need.max(0) > 0
    if not resources.any():
        return [0.0] * len(need)
    return [covering(capacity[:, resources], price, row[resources]) if row.any() else 0.0 for row in need]
