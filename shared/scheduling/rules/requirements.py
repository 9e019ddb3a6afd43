"""Sets of label values that node requirements allow, and their intersection.

NodePools, pods, volumes and topology all narrow the same thing: the values that a node may have for a label, and
whether it may lack the label. A complement set stands for "any value but these", bounds for Gt and Lt.
Source: apimachinery's node selectors; Karpenter's Gte, Lte and its handling of deprecated label names.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from shared.api.kubernetes import NodeSelectorRequirement
from shared.api.labels import integer, normalize_key
from shared.api.selectors import OPERATORS
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.api.selectors import Expression


class RequirementError(ValueError):
    """An invalid requirement; the message names its key and the problem."""


class ValueSet(Struct):
    """The allowed values of a label.

    ``complement``: all values but ``values``. ``above`` and ``below`` are exclusive bounds of integers. ``absent``: a
    node may lack the label.
    """

    values: frozenset[str]
    complement: bool = False
    above: int | None = None
    below: int | None = None
    absent: bool = False

    def has(self, value: str | None) -> bool:
        """Whether the value is allowed; None asks whether the label may be absent."""
        if value is None:
            return self.absent
        return (value in self.values) != self.complement and self._within_bounds(value)

    def _within_bounds(self, value: str) -> bool:
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
        """The only allowed value; None if there are several or the label may be absent."""
        return next(iter(self.values)) if not self.complement and len(self.values) == 1 and not self.absent else None

    def __and__(self, other: ValueSet) -> ValueSet:
        """What both sets allow.

        >>> (only("a", "b") & only("b", "c")).values == {"b"}
        True
        >>> (only("a", "b") & ANY) == only("a", "b"), (only("a") & only("b")).empty
        (True, True)
        """
        above = _largest(self.above, other.above)
        below = _smallest(self.below, other.below)
        absent = self.absent and other.absent
        if self.complement and other.complement:
            return ValueSet(self.values | other.values, complement=True, above=above, below=below, absent=absent)
        if self.complement:
            values = other.values - self.values
        elif other.complement:
            values = self.values - other.values
        else:
            values = self.values & other.values
        bounds = ValueSet(frozenset(), complement=True, above=above, below=below)
        return ValueSet(frozenset(v for v in values if bounds.has(v)), absent=absent)

    def any_value(self) -> str | None:
        """An allowed value, always the same: the first in order, or an integer within the bounds."""
        if not self.complement:
            return min(self.values) if self.values else None
        start = (self.above + 1) if self.above is not None else (self.below - 1) if self.below is not None else 1
        step = -1 if self.above is None and self.below is not None else 1
        while str(start) in self.values:
            start += step
        return str(start) if self.has(str(start)) else None


def _largest(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def _smallest(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


ANY = ValueSet(frozenset(), complement=True, absent=True)
EXISTS = ValueSet(frozenset(), complement=True)
ABSENT = ValueSet(frozenset(), absent=True)
"""For a label that no node of a NodePool has."""

Requirements = dict[str, ValueSet]
"""Allowed values by normalized label key."""


def only(*values: str) -> ValueSet:
    """The set of exactly these values."""
    return ValueSet(frozenset(values))


def anything_but(*values: str) -> ValueSet:
    """Any other value, or none: as operator NotIn."""
    return ValueSet(frozenset(values), complement=True, absent=True)


@lru_cache(maxsize=1024)  # a list of 60 instance types takes 6 KB
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
    """The requirements of all expressions together, with deprecated label names replaced.

    >>> from shared.api.kubernetes import NodeSelectorRequirement
    >>> zone = "topology.kubernetes.io/zone"
    >>> in_zones = NodeSelectorRequirement(key=zone, operator="In", values=["a", "b"])
    >>> not_in_a = NodeSelectorRequirement(key=zone, operator="NotIn", values=["a"])
    >>> parse([in_zones, not_in_a]) == {zone: only("b")}
    True

    Raises:
        RequirementError: an operator is unknown or its values are invalid.
    """
    requirements: Requirements = {}
    for e in expressions:
        key = normalize_key(e.key)
        allowed = _value_set(e.key, e.operator, tuple(e.values))
        requirements[key] = requirements[key] & allowed if key in requirements else allowed
    return requirements


def certain_labels(requirements: Requirements) -> dict[str, str]:
    """The labels with one allowed value, which whatever meets the requirements has for sure."""
    return {key: allowed.single for key, allowed in requirements.items() if allowed.single is not None}


def label_requirements(labels: Mapping[str, str]) -> Requirements:
    """Requirements that allow exactly these labels."""
    requirements: Requirements = {}
    for label, value in labels.items():
        key = normalize_key(label)
        requirements[key] = requirements[key] & only(value) if key in requirements else only(value)
    return requirements


def intersect(a: Requirements, b: Requirements) -> Requirements:
    """What both allow, key by key; a conflict is kept as an empty set.

    >>> both = intersect({"arch": only("arm64"), "team": EXISTS}, {"arch": only("amd64")})
    >>> conflicting_key(both)
    'arch'
    """
    merged = dict(a)
    for key, allowed in b.items():
        merged[key] = merged[key] & allowed if key in merged else allowed
    return merged


def conflicting_key(requirements: Requirements) -> str | None:
    """The first key for which nothing is allowed; None if there is none."""
    return next((key for key in sorted(requirements) if requirements[key].empty), None)


def signature(requirements: Requirements) -> tuple[tuple[object, ...], ...]:
    """A hashable, ordered form: equal for equal requirements."""
    return tuple(
        (key, tuple(sorted(r.values)), r.complement, r.above, r.below, r.absent)
        for key, r in sorted(requirements.items())
    )


def node_selector_requirements(
    requirements: Requirements, min_values: Mapping[str, int]
) -> list[NodeSelectorRequirement]:
    """The requirements as a NodeClaim states them, sorted by key and value, with the NodePool's minValues."""
    selectors: list[NodeSelectorRequirement] = []
    for key, allowed in sorted(requirements.items()):
        operators = _operators(allowed)
        for i, (operator, values) in enumerate(operators):
            least = min_values.get(key) if i == len(operators) - 1 else None
            selectors.append(NodeSelectorRequirement(key=key, operator=operator, values=values, min_values=least))
    return selectors


def _operators(allowed: ValueSet) -> list[tuple[str, list[str]]]:
    """A set as operators with their values; all of them must hold. Empty where any value and absence are allowed."""
    if not allowed.complement:
        return [("In", sorted(allowed.values)) if allowed.values else ("DoesNotExist", [])]
    operators: list[tuple[str, list[str]]] = []
    if allowed.values:
        operators.append(("NotIn", sorted(allowed.values)))
    if allowed.above is not None:
        operators.append(("Gt", [str(allowed.above)]))
    if allowed.below is not None:
        operators.append(("Lt", [str(allowed.below)]))
    if not allowed.absent and allowed.above is None and allowed.below is None:
        operators.append(("Exists", []))
    return operators
