"""minValues: the least number of distinct values of a label that a NodeClaim's instance types must have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from shared.scheduling.state.launch_options import LaunchOptions, NodeClaimTemplate

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]


def satisfies_min_values(
    launch_options: LaunchOptions, template: NodeClaimTemplate, options: Ints, offerings: Bools
) -> bool:
    """Whether these launch options have as many distinct values of each label as the NodePool's minValues require."""
    return all(
        len(distinct_values(launch_options, template, options, offerings, key)) >= least
        for key, least in template.min_values.items()
    )


def distinct_values(
    launch_options: LaunchOptions, template: NodeClaimTemplate, options: Ints, offerings: Bools, key: str
) -> set[str]:
    """The distinct values of a label that these launch options of a template have in these offerings."""
    if key in launch_options.columns:
        if not len(options):
            return set()
        available = np.isfinite(launch_options.price[options]).any(0) & offerings
        return launch_options.columns[key].values_at(available)
    instance_types = template.instance_types
    if key in instance_types.type_columns:
        return instance_types.type_columns[key].values_at(launch_options.type_of[options])
    allowed = template.allowed_values(key)
    return set(instance_types.values_of(key)) or {v for v in allowed.values if not allowed.complement}


def truncate(
    launch_options: LaunchOptions, template: NodeClaimTemplate, options: Ints, offerings: Bools, most: int
) -> tuple[Ints, bool]:
    """The first ``most`` launch options, or others instead where minValues require it; and whether they are satisfied.

    ``options`` are ordered by price, and so is the result.
    """
    first = options[:most]
    if satisfies_min_values(launch_options, template, first, offerings):
        return first, True
    if not satisfies_min_values(launch_options, template, options, offerings):
        return first, False
    required = _smallest_satisfying(launch_options, template, options, offerings)
    chosen = set(required)
    for option in options.tolist():
        if len(chosen) >= most:
            break
        chosen.add(option)
    truncated = [option for option in options.tolist() if option in chosen][:most]
    return np.array(truncated, np.int64), len(required) <= most


def _smallest_satisfying(
    launch_options: LaunchOptions, template: NodeClaimTemplate, options: Ints, offerings: Bools
) -> set[int]:
    """Few launch options that satisfy minValues: greedy set cover, the cheapest of equals."""
    min_values = template.min_values
    values_of = {
        option: {
            key: distinct_values(launch_options, template, np.array([option]), offerings, key) for key in min_values
        }
        for option in options.tolist()
    }
    covered: dict[str, set[str]] = {key: set() for key in min_values}

    def gain(option: int) -> int:
        return sum(
            min(len(values_of[option][key] - covered[key]), least - len(covered[key]))
            for key, least in min_values.items()
            if len(covered[key]) < least
        )

    chosen: set[int] = set()
    while any(len(covered[key]) < least for key, least in min_values.items()):
        best = max((option for option in values_of if option not in chosen), key=gain)
        chosen.add(best)
        for key in covered:
            covered[key] |= values_of[best][key]
    return chosen
