"""The launch options that are worth considering for pods that may share a node.

Of launch options that the same pods may use, only those that no other dominates (at least as large, no more expensive)
can be the best. The choice is kept with the launch options, as all plans of a run need the same again and again.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from shared.scheduling.solver.fit import undominated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from shared.scheduling.solver.fit import Lot
    from shared.scheduling.state.launch_options import LaunchOptions
    from shared.scheduling.state.node_pool_limits import NodePoolLimits
    from shared.scheduling.topology.feasibility import Feasibility

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]


class OptionSet:
    """Lots that can share nodes, the launch options for them with their prices, and their custom labels."""

    def __init__(self, lots: Sequence[Lot], options: Ints, price: Floats, custom: int) -> None:
        self.lots = lots
        self.options = options
        self.price = price
        self.custom = custom

    @cached_property
    def requests(self) -> Ints:
        """What a pod of each lot requests: lots x resources."""
        return np.stack([lot.requests for lot in self.lots])

    @cached_property
    def worth(self) -> Floats:
        """What a pod of each lot is worth."""
        return np.array([lot.worth for lot in self.lots])

    @cached_property
    def masks(self) -> Ints:
        """The ``mask_key`` of each lot's feasibility."""
        return np.array([lot.feasibility.mask_key for lot in self.lots], np.int64)

    @cached_property
    def feasibilities(self) -> dict[int, Feasibility]:
        """One feasibility for each ``mask_key``."""
        return {lot.feasibility.mask_key: lot.feasibility for lot in self.lots}


class OptionSets:
    """Finds the option sets of lots, as NodePool limits allow now."""

    def __init__(self, launch_options: LaunchOptions, limits: NodePoolLimits) -> None:
        self._launch_options = launch_options
        self._limits = limits

    def of(self, lots: Sequence[Lot], options: Bools) -> list[OptionSet]:
        """One set for each combination of lots that can share an offering and custom labels."""
        option_sets: list[OptionSet] = []
        allowed = options & self._limits.allowed_options()
        allowed_key = allowed.tobytes()
        is_near = tuple([self._limits.is_near(t) for t in range(len(self._launch_options.templates))])
        chosen_options = self._launch_options.undominated_options
        feasibilities = list({lot.feasibility.mask_key: lot.feasibility for lot in lots}.values())
        for offerings in _equal_columns(np.stack([f.offerings for f in feasibilities])):
            sharing = [f for f in feasibilities if f.offerings[offerings[0]]]
            if not sharing:
                continue
            masks = frozenset(f.mask_key for f in sharing)
            key = (allowed_key, is_near, masks, offerings.tobytes())
            if key not in chosen_options:
                chosen_options[key] = self._choose(sharing, allowed, offerings)
            sharing_lots = [lot for lot in lots if lot.feasibility.mask_key in masks]
            option_sets += [
                OptionSet(sharing_lots, chosen, price, custom) for chosen, price, custom in chosen_options[key]
            ]
        return option_sets

    def _choose(
        self, feasibilities: Sequence[Feasibility], allowed: Bools, offerings: Ints
    ) -> list[tuple[Ints, Floats, int]]:
        """The launch options to consider in these offerings, with their prices, by custom labels."""
        price = self._launch_options.price[:, offerings].min(1)
        usable = np.logical_or.reduce([f.options for f in feasibilities])
        options = np.flatnonzero(allowed & np.isfinite(price) & usable)
        choices: list[tuple[Ints, Floats, int]] = []
        for custom in sorted({c for f in feasibilities for c in np.unique(f.custom[options]).tolist()}):
            chosen = self._undominated(feasibilities, options, price, custom)
            if len(chosen):
                choices.append((chosen, price[chosen], custom))
        return choices

    def _undominated(self, feasibilities: Sequence[Feasibility], options: Ints, price: Floats, custom: int) -> Ints:
        """The launch options that no other dominates which the same pods may use.

        All options of NodePools with minValues or near limits stay, as there more counts than size and price.
        """
        launch_options = self._launch_options
        own = np.stack([f.custom[options] for f in feasibilities])
        allowed = np.stack([f.options[options] for f in feasibilities]) & ((own == 0) | (own == custom))
        usable = allowed.any(0) & ((own == custom) & allowed).any(0) if custom else allowed.any(0)
        options, allowed = options[usable], allowed[:, usable]
        groups: dict[tuple[int, bytes], list[int]] = {}
        templates = launch_options.template_of[options].tolist()
        for j, (option, template) in enumerate(zip(options.tolist(), templates, strict=True)):
            keeps_all = launch_options.templates[template].min_values or self._limits.is_near(template)
            groups.setdefault((template if keeps_all else -1, allowed[:, j].tobytes()), []).append(option)
        kept: list[int] = []
        for (template, _), members in groups.items():
            if template >= 0:
                kept.extend(members)
            else:
                group = np.array(members)
                kept.extend(group[undominated(launch_options.free[group], price[group])].tolist())
        return np.array(sorted(kept), np.int64)


def _equal_columns(matrix: Bools) -> list[Ints]:
    """The indices of a matrix' columns, equal columns together."""
    groups: dict[bytes, list[int]] = {}
    for j in range(matrix.shape[1]):
        groups.setdefault(matrix[:, j].tobytes(), []).append(j)
    return [np.array(group) for group in groups.values()]
