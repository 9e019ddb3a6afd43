"""The least that any nodes for a trace's pods can cost: a covering linear program for each five minutes.

A pod counts while it exists for the whole step and was created two minutes before it, so that it surely has a node.
Only sums of requests must fit (:mod:`bench.lp_lower_bound`), on fractions of nodes at their cheapest offering.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bench.lp_lower_bound import covering
from bench.month_catalog import DEFAULT_POOL, GPU_POOL, RESOURCES, size_of

if TYPE_CHECKING:
    from bench.load_trace import Trace
    from bench.month_catalog import Catalog

STEP = 300
_WAIT = 120
_SECONDS_AN_HOUR = 3600


def lower_bound(trace: Trace, catalog: Catalog, *, seconds: int) -> list[float]:
    """USD per hour of each step of :data:`STEP` seconds."""
    steps = seconds // STEP
    rates = np.zeros(steps)
    for pool in (DEFAULT_POOL, GPU_POOL):
        need = np.zeros((steps + 1, len(RESOURCES)))
        for pod in trace.pods:
            if (GPU_POOL if pod.gpus else DEFAULT_POOL) != pool:
                continue
            first = -(-(pod.created + _WAIT) // STEP)
            last = min(pod.deleted // STEP, steps)
            if first < last:
                size = size_of(pod.cpu, pod.memory, pod.gpus)
                need[first] += size
                need[last] -= size
        rates += _rates(np.cumsum(need, axis=0)[:steps], catalog, pool)
    return [float(rate) for rate in rates]


def _rates(need: np.ndarray[tuple[int, int], np.dtype[np.float64]], catalog: Catalog, pool: str) -> list[float]:
    offerings = catalog.offerings[pool]
    capacity, price = offerings.free.astype(np.float64), offerings.price.min((1, 2))
    resources = need.max(0) > 0
    if not resources.any():
        return [0.0] * len(need)
    return [covering(capacity[:, resources], price, row[resources]) if row.any() else 0.0 for row in need]


def dollars(rates: list[float]) -> float:
    """USD of all steps."""
    return sum(rates) * STEP / _SECONDS_AN_HOUR
