"""Instance types whose offerings were adjusted, kept so that equal inputs give the identical tuple.

Scheduling keeps what it derives from a tuple of instance types by the tuple's identity, and disruption keeps plans by
it. So an adjustment that is computed again for each decision would cost more than the decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared import runtime
from shared.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from shared.instance_types.instance_type import InstanceType


class _Adjusted(Struct):
    types: tuple[InstanceType, ...]
    inputs: object
    result: tuple[InstanceType, ...]


def adjusted(
    slot: Hashable,
    types: tuple[InstanceType, ...],
    inputs: object,
    adjust: Callable[[], tuple[InstanceType, ...]],
) -> tuple[InstanceType, ...]:
    """The result of ``adjust``: the one kept in the slot, if it is of the identical types and equal ``inputs``."""
    cache: dict[Hashable, _Adjusted] = runtime.current().cached("adjusted_types", dict)
    kept = cache.get(slot)
    if kept is None or kept.types is not types or kept.inputs != inputs:
        kept = cache[slot] = _Adjusted(types, inputs, adjust())
    return kept.result
