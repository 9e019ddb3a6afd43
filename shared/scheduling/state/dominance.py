"""Which launch options others dominate: at least as large in every resource, and no more expensive.

For pods that may use both, a dominated launch option is never the best.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

_OPTIONS_COMPARED = 256
"""How many launch options are compared with one another at once."""


def undominated(free: Ints, price: Floats) -> Ints:
    """The indices of the rows of ``free`` (rows x resources) that no other row dominates, in order of price."""
    order = np.lexsort((np.arange(len(price)), -free.sum(1), price))
    columns = np.ascontiguousarray(free[order].T)
    columns = columns[(columns != columns[:, :1]).any(1)] if len(order) else columns
    if _each_exceeds_all_before(columns):
        return order
    kept = np.zeros(0, np.int64)
    for start in range(0, len(order), _OPTIONS_COMPARED):
        block = np.arange(start, min(start + _OPTIONS_COMPARED, len(order)))
        block = block[~at_least(columns[:, kept], columns[:, block]).any(0)]
        within_block = at_least(columns[:, block], columns[:, block])
        kept = np.concatenate([kept, block[~np.triu(within_block, 1).any(0)]])
    return order[kept]


def _each_exceeds_all_before(columns: Ints) -> bool:
    """Whether each row has more of some resource than all rows before it (resources x rows)."""
    largest = np.maximum.accumulate(columns, axis=1)
    return bool((columns[:, 1:] > largest[:, :-1]).any(0).all())


def at_least(larger: Ints, smaller: Ints) -> Bools:
    """Which columns of ``larger`` are at least which columns of ``smaller`` in every resource: larger x smaller."""
    result = np.ones((larger.shape[1], smaller.shape[1]), np.bool_)
    for a, b in zip(larger, smaller, strict=True):
        result &= a[:, None] >= b[None, :]
    return result
