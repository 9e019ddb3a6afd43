"""Whether launch options have as many distinct values of a label as the NodePool's minValues ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from shared.scheduling.state.launch_options import LaunchOptions, NodeClaimTemplate

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]


def satisfies_min_values(
    launch_options: LaunchOptions, pool: NodeClaimTemplate, options: Ints, offerings: Bools
) -> bool:
    """Whether these rows have as many different values of each label as the pool's minValues ask for."""
    return all(
        len(distinct_values(launch_options, pool, options, offerings, key)) >= n for key, n in pool.min_values.items()
    )


def distinct_values(
    launch_options: LaunchOptions, pool: NodeClaimTemplate, options: Ints, offerings: Bools, key: str
) -> set[str]:
    """The different values of a label that these rows have in these offerings."""
    if key in launch_options.columns:
        had = (
            np.isfinite(launch_options.price[options]).any(0) & offerings
            if len(options)
            else np.zeros(len(offerings), np.bool_)
        )
        column = launch_options.columns[key]
        return {column.values[c] for c in column.codes[had].tolist() if c >= 0}
    if key in pool.catalog.type_columns:
        column = pool.catalog.type_columns[key]
        return {column.values[c] for c in column.codes[launch_options.type_of[options]].tolist() if c >= 0}
    return set(pool.catalog.values_of(key)) or {v for v in pool.state(key).values if not pool.state(key).complement}
