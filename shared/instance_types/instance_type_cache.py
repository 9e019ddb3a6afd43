"""The lists of instance types that earlier decisions worked out: equal inputs give the identical tuple.

Scheduling keeps what it derives from a tuple of instance types by the tuple's identity, and disruption keeps plans by
it. So a list that is worked out again for each decision would cost more than the decision.

Results are kept by values: the slot names a step and the node class or NodePool that it is for, and an entry holds
everything that its result was made of. A process has one cache.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.base.runtime import Runtime
    from shared.instance_types.instance_type import InstanceType

T = TypeVar("T")

Slot = tuple[str, str]
"""A step, and the name of the node class or NodePool that its result is for."""

_MAX_ENTRIES = 4
"""How many results a slot keeps: a run asks for few different sets of offerings in turn."""
_MAX_SLOTS = 1024
"""More than the node classes and NodePools of a cluster have; those of deleted ones make room."""


class Adjustment(Struct):
    """A change of each instance type by itself: a ``step`` with equal ``inputs`` changes equal types equally."""

    step: str
    inputs: object
    adjust: Callable[[InstanceType], InstanceType]

    def is_same(self, earlier: Adjustment | _Adjusted) -> bool:
        """Whether the inputs are equal to an earlier adjustment's of the same step."""
        return self.inputs is earlier.inputs or self.inputs == earlier.inputs

    def of(self, types: tuple[InstanceType, ...], *, earlier: _Adjusted | None = None) -> tuple[InstanceType, ...]:
        """The adjusted types; those that an ``earlier`` result of equal inputs has are taken from there."""
        pairs = zip(earlier.types, earlier.result, strict=True) if earlier is not None else ()
        known = {before.name: (before, after) for before, after in pairs}
        return tuple(pair[1] if (pair := known.get(t.name)) and pair[0] is t else self.adjust(t) for t in types)


class _Adjusted(Struct, eq=False):
    types: tuple[InstanceType, ...]
    inputs: object
    result: tuple[InstanceType, ...]


class InstanceTypeCache:
    """The results of a process's latest decisions, by slot. Thread-safe."""

    def __init__(self, *, max_slots: int = _MAX_SLOTS) -> None:
        self._max_slots = max_slots
        self._slots: dict[Slot, tuple[object, ...]] = {}
        self._lock = Lock()

    @classmethod
    def of(cls, runtime: Runtime) -> InstanceTypeCache:
        """The cache of the process."""
        return runtime.cached("instance_types", cls)

    def latest(self, slot: Slot, kind: type[T]) -> tuple[T, ...]:
        """The entries of the slot, the one that was used last first."""
        return tuple(entry for entry in self._slots.get(slot, ()) if isinstance(entry, kind))

    def keep(self, slot: Slot, entry: object) -> None:
        """Keep an entry as the one that was used last."""
        with self._lock:
            before = self._slots.pop(slot, ())
            self._slots[slot] = (entry, *(e for e in before if e is not entry))[:_MAX_ENTRIES]
            if len(self._slots) > self._max_slots:
                del self._slots[next(iter(self._slots))]

    def adjusted(self, pool: str, types: tuple[InstanceType, ...], adjustment: Adjustment) -> tuple[InstanceType, ...]:
        """The adjusted types of a NodePool: the identical tuple for identical types and equal inputs.

        Of other types, only those are adjusted that the latest result of equal inputs doesn't have.
        """
        slot = adjustment.step, pool
        of_inputs = [entry for entry in self.latest(slot, _Adjusted) if adjustment.is_same(entry)]
        entry = next((e for e in of_inputs if e.types is types), None)
        if entry is None:
            earlier = of_inputs[0] if of_inputs else None
            entry = _Adjusted(types, adjustment.inputs, adjustment.of(types, earlier=earlier))
        self.keep(slot, entry)
        return entry.result
