"""Spot options of a NodePool: what its annotations ask of spot capacity.

Karpenter has no fields for these. An annotation with an invalid value has its default, and the NodePool's condition
``SpotOptionsValid`` names it: pods must not wait for a typo.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.base.struct import Struct

if TYPE_CHECKING:
    from shared.api.nodepool import NodePool

PRICE_CAPACITY_OPTIMIZED, CAPACITY_OPTIMIZED = "price-capacity-optimized", "capacity-optimized"
ALLOCATION_STRATEGIES = (PRICE_CAPACITY_OPTIMIZED, CAPACITY_OPTIMIZED)
MAX_DIVERSITY = 60
"""As many instance types as a NodeClaim lists at most."""

_NUMBER = re.compile(r"[0-9]{1,4}")
_SHARE = re.compile(r"[0-9]{1,4}(\.[0-9]{1,9})?")


class SpotOptions(Struct, kw_only=True):
    """What a NodePool asks of spot capacity.

    ``diversity`` is the least number of instance types on its NodeClaims, and of spot pools (an instance type in a
    zone) that are offered to CreateFleet; 0: no least number. ``max_price_share`` is the most that a spot offering may
    cost as a share of the on-demand price of its instance type; None: any.
    """

    diversity: int = 0
    allocation_strategy: str = PRICE_CAPACITY_OPTIMIZED
    max_price_share: float | None = None


DEFAULT = SpotOptions()


def spot_options(pool: NodePool) -> SpotOptions:
    """The NodePool's options; those with an invalid value have their default."""
    return read_spot_options(pool)[0]


def read_spot_options(pool: NodePool) -> tuple[SpotOptions, tuple[str, ...]]:
    """The NodePool's options, and a sentence for each annotation whose value is invalid."""
    annotations = pool.metadata.annotations
    if not annotations or annotations.keys().isdisjoint(names.SPOT_ANNOTATIONS):
        return DEFAULT, ()
    problems: list[str] = []
    diversity = 0
    if text := annotations.get(names.SPOT_DIVERSITY, "").strip():
        if _NUMBER.fullmatch(text) and 1 <= int(text) <= MAX_DIVERSITY:
            diversity = int(text)
        else:
            problems.append(_problem(names.SPOT_DIVERSITY, text, f"a number from 1 to {MAX_DIVERSITY}"))
    strategy = annotations.get(names.SPOT_ALLOCATION_STRATEGY, "").strip() or PRICE_CAPACITY_OPTIMIZED
    if strategy not in ALLOCATION_STRATEGIES:
        problems.append(_problem(names.SPOT_ALLOCATION_STRATEGY, strategy, " or ".join(ALLOCATION_STRATEGIES)))
        strategy = PRICE_CAPACITY_OPTIMIZED
    share: float | None = None
    if text := annotations.get(names.MAX_SPOT_PRICE_SHARE, "").strip():
        if _SHARE.fullmatch(text) and 0 < float(text) <= 1:
            share = float(text)
        else:
            problems.append(_problem(names.MAX_SPOT_PRICE_SHARE, text, "a number above 0, at most 1, such as 0.8"))
    options = SpotOptions(diversity=diversity, allocation_strategy=strategy, max_price_share=share)
    return options, tuple(problems)


def _problem(annotation: str, text: str, allowed: str) -> str:
    return f'annotation {annotation}: "{text}" must be {allowed}; the default is used'
