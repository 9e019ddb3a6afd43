"""Instance types whose offerings were adjusted, kept so that equal inputs give the identical tuple.

Scheduling keeps what it derives from a tuple of instance types by the tuple's identity, and disruption keeps plans by
it. So an adjustment that is computed again for each decision would cost more than the decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.base import runtime
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from shared.instance_types.instance_type import InstanceType


_MAX_KEPT = 4
"""How many results a slot keeps: a run asks for few different sets of offerings in turn."""


class _Adjusted(Struct):
    types: tuple[InstanceType, ...]
    inputs: object
    result: tuple[InstanceType, ...]


def adjusted(
    slot: Hashable,
    types: tuple[InstanceType, ...],
    inputs: object,
    adjust: Callable[[InstanceType], InstanceType],
) -> tuple[InstanceType, ...]:
    """Each type as ``adjust`` changes it: a result kept in the slot, if it is of the identical types and equal inputs.

    Of other types, only those are adjusted that the last result of equal inputs doesn't have.
    """
    cache: dict[Hashable, list[_Adjusted]] = runtime.current().cached("adjusted_types", dict)
    kept = cache.get(slot, [])
    of_inputs = [k for k in kept if k.inputs == inputs]
    same = next((k for k in of_inputs if k.types is types), None)
    if same is not None:
        return same.result
    before = of_inputs[0] if of_inputs else None
    known = {id(t): result for t, result in zip(before.types, before.result, strict=True)} if before else {}
    result = tuple(known[id(t)] if id(t) in known else adjust(t) for t in types)
    cache[slot] = [_Adjusted(types, inputs, result), *kept[: _MAX_KEPT - 1]]
    return result
