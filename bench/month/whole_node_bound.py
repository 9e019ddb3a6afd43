"""The least that whole nodes for a trace's pods can cost: a covering integer program for each five minutes.

As :mod:`bench.month.price_bound`, but no node is a fraction of one. Pods may still be split over nodes, and nodes come
and go at no cost between two steps, so any real decisions cost more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import highspy
import numpy as np

from bench.month.catalog import POOLS
from bench.month.price_bound import STEP, needs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.month.catalog import Catalog
    from bench.month.load_trace import Trace

_SECONDS = 2.0
"""For each step; what is proven by then is a bound, too."""


def lower_bound(trace: Trace, catalog: Catalog, *, seconds: int) -> float:
    """USD for the whole time."""
    rate = sum(
        covering(offerings.free.astype(np.float64), offerings.price.min((1, 2)), row)
        for pool, rows in zip(POOLS, needs(trace, seconds=seconds), strict=True)
        for offerings in (catalog.offerings[pool],)
        for row in rows
        if row.any()
    )
    return rate * STEP / 3600


def covering(capacity: NDArray[np.float64], price: NDArray[np.float64], need: NDArray[np.float64]) -> float:
    """USD per hour: at most the least price · n with capacity.T · n >= need, n whole numbers."""
    wanted = need > 0
    scale = need[wanted]
    solver = highspy.Highs()
    solver.silent()
    solver.setOptionValue("time_limit", _SECONDS)
    solver.setOptionValue("mip_rel_gap", 1e-4)
    for _ in range(len(scale)):
        solver.addRow(1.0, highspy.kHighsInf, 0, np.array([], np.int32), np.array([]))
    rows = np.arange(len(scale), dtype=np.int32)
    for column, (shares, usd) in enumerate(zip(capacity[:, wanted] / scale, price.tolist(), strict=True)):
        solver.addCol(usd, 0.0, highspy.kHighsInf, len(rows), rows, shares)
        solver.changeColIntegrality(column, highspy.HighsVarType.kInteger)
    solver.run()
    return float(solver.getInfo().mip_dual_bound)
