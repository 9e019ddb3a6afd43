"""What values a label may have, as sets that can be intersected.

Pools, pods, volumes and topology all narrow the same thing: which values a node may have for a key, and whether it may
lack the key. One small algebra serves them all; a complement set stands for "anything but these", bounds for Gt and Lt.
Source: apimachinery's node selectors; Karpenter's Gte, Lte and treatment of old label names.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from shared.api.kubernetes import NodeSelectorRequirement
from shared.api.labels import normalize_key
from shared.api.selectors import OPERATORS, integer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.api.selectors import Expression


class RequirementError(ValueError):
    """A requirement that means nothing; the message names its key and what is wrong."""


@dataclass(frozen=True, slots=True)
class ValueSet:
    """The values a key may have: ``values``, or all but them; integers within the bounds; perhaps no value at all."""

    values: frozenset[str]
    complement: bool = False
    above: int | None = None
    below: int | None = None
    absent: bool = False

    def has(self, value: str | None) -> bool:
        """Whether the value is allowed; None asks whether the key may be absent."""
        if value is None:
            return self.absent
        return (value in self.values) != self.complement and self._within(value)

    def _within(self, value: str) -> bool:
        if self.above is None and self.below is None:
            return True
        number = integer(value)
        if number is None:
            return False
        return (self.above is None or number > self.above) and (self.below is None or number < self.below)

    @property
    def empty(self) -> bool:
        """Whether nothing is allowed, not even absence."""
        return not self.absent and self.valueless

    @property
    def valueless(self) -> bool:
        """Whether no value is allowed (absence may be)."""
        if not self.complement:
            return not self.values
        return self.above is not None and self.below is not None and self.below - self.above <= 1

    @property
    def single(self) -> str | None:
        """The one value that is allowed, if it is one."""
        return next(iter(self.values)) if not self.complement and len(self.values) == 1 and not self.absent else None

    def __and__(self, other: ValueSet) -> ValueSet:
        """What both allow."""
        above = (
            other.above if self.above is None else self.above if other.above is None else max(self.above, other.above)
        )
        below = (
            other.below if self.below is None else self.below if other.below is None else min(self.below, other.below)
        )
        if self.complement and other.complement:
            return ValueSet(self.values | other.values, True, above, below, self.absent and other.absent)  # noqa: FBT003 (a field)
        if self.complement:
            kept = other.values - self.values
        elif other.complement:
            kept = self.values - other.values
        else:
            kept = self.values & other.values
        bounds = ValueSet(frozenset(), True, above, below)  # noqa: FBT003 (a field)
        return ValueSet(frozenset(v for v in kept if bounds.has(v)), absent=self.absent and other.absent)

    def any_value(self) -> str | None:
        """One allowed value, the same each time: the first in order, or an integer within the bounds."""
        if not self.complement:
            return min(self.values) if self.values else None
        start = (self.above + 1) if self.above is not None else (self.below - 1) if self.below is not None else 1
        step = -1 if self.above is None and self.below is not None else 1
        while str(start) in self.values:
            start += step
        return str(start) if self.has(str(start)) else None


ANY = ValueSet(frozenset(), complement=True, absent=True)
EXISTS = ValueSet(frozenset(), complement=True)
ABSENT = ValueSet(frozenset(), absent=True)
"""A key that no node of a pool has."""

Requirements = dict[str, ValueSet]
"""Canonical key to what is allowed."""


def only(*values: str) -> ValueSet:
    """These values."""
    return ValueSet(frozenset(values))


@lru_cache(maxsize=8192)
def _value_set(key: str, operator: str, values: tuple[str, ...]) -> ValueSet:
    match operator:
        case "In":
            if not values:
                raise RequirementError(f"{key} In has no values")
            return ValueSet(frozenset(values))
        case "NotIn":
            return ValueSet(frozenset(values), complement=True, absent=True)
        case "Exists":
            return EXISTS
        case "DoesNotExist":
            return ABSENT
        case "Gt" | "Lt" | "Gte" | "Lte":
            bound = integer(values[0]) if len(values) == 1 else None
            if bound is None:
                raise RequirementError(f"{key} {operator} needs one integer, not {list(values)}")
            if operator in {"Gt", "Gte"}:
                return ValueSet(frozenset(), complement=True, above=bound - (operator == "Gte"))
            return ValueSet(frozenset(), complement=True, below=bound + (operator == "Lte"))
        case _:
            raise RequirementError(f'{key}: "{operator}" is not an operator; allowed are {", ".join(OPERATORS)}')


def parse(expressions: Iterable[Expression]) -> Requirements:
    """All expressions at once, old label names as today's.

    Raises:
        RequirementError: an operator is unknown or its values don't suit it.
    """
    found: Requirements = {}
    for e in expressions:
        key = normalize_key(e.key)
        allowed = _value_set(e.key, e.operator, tuple(e.values))
        found[key] = found[key] & allowed if key in found else allowed
    return found


def of_labels(labels: Mapping[str, str]) -> Requirements:
    """Exactly these labels."""
    found: Requirements = {}
    for key, value in labels.items():
        name = normalize_key(key)
        found[name] = found[name] & only(value) if name in found else only(value)
    return found


def both(a: Requirements, b: Requirements) -> Requirements:
    """What both allow, key by key; a contradiction stays as an empty set."""
    merged = dict(a)
    for key, allowed in b.items():
        merged[key] = merged[key] & allowed if key in merged else allowed
    return merged


def contradiction(requirements: Requirements) -> str | None:
    """A key of which nothing is allowed, if there is one."""
    return next((key for key in sorted(requirements) if requirements[key].empty), None)


def signature(requirements: Requirements) -> tuple[tuple[object, ...], ...]:
    """A hashable, ordered form: equal for equal requirements."""
    return tuple(
        (key, tuple(sorted(r.values)), r.complement, r.above, r.below, r.absent)
        for key, r in sorted(requirements.items())
    )


def expressions(requirements: Requirements, min_values: Mapping[str, int]) -> list[NodeSelectorRequirement]:
    """As a NodeClaim states them: sorted by key, values sorted; ``min_values`` where the pool asks for them."""
    found: list[NodeSelectorRequirement] = []
    for key, allowed in sorted(requirements.items()):
        least = min_values.get(key)
        parts: list[tuple[str, list[str]]] = []
        if not allowed.complement:
            parts.append(("In", sorted(allowed.values)) if allowed.values else ("DoesNotExist", []))
        else:
            if allowed.values:
                parts.append(("NotIn", sorted(allowed.values)))
            if allowed.above is not None:
                parts.append(("Gt", [str(allowed.above)]))
            if allowed.below is not None:
                parts.append(("Lt", [str(allowed.below)]))
            if not allowed.absent and not any(operator in {"Gt", "Lt"} for operator, _ in parts):
                parts.append(("Exists", []))
        for i, (operator, values) in enumerate(parts):
            found.append(
                NodeSelectorRequirement(
                    key=key, operator=operator, values=values, min_values=least if i == len(parts) - 1 else None
                )
            )
    return found
