"""Whether an instance type meets requirements ``key operator values``, and which AMI it boots from.

Semantics: Kubernetes' NodeSelectorRequirement, and Karpenter's Gte and Lte. A missing label meets NotIn and
DoesNotExist only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.api.kubernetes import NodeSelectorRequirement
    from shared.api.nodeclass import ResolvedAMI

_INSTANCE_TYPE_KEYS = labels.WELL_KNOWN - {labels.HOSTNAME, labels.NODEPOOL}
"""Keys that instance types and offerings define; others are defined by the NodePool."""


def meets(offering_labels: Mapping[str, str], requirements: Iterable[NodeSelectorRequirement]) -> bool:
    """Whether the labels of an instance type and offering meet the requirements on keys that these define."""
    return all(
        met(r.operator, r.values, offering_labels.get(labels.normalize_key(r.key)))
        for r in requirements
        if labels.normalize_key(r.key) in _INSTANCE_TYPE_KEYS
    )


def met(operator: str, values: list[str], value: str | None) -> bool:
    """Whether a label's value (None: no such label) meets the operator with its values."""
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" | "Gte" | "Lte":
            return value is not None and bool(values) and _compared(operator, value, values[0])
        case _:
            return False


def _compared(operator: str, value: str, bound: str) -> bool:
    try:
        left, right = int(value), int(bound)
    except ValueError:
        return False
    match operator:
        case "Gt":
            return left > right
        case "Lt":
            return left < right
        case "Gte":
            return left >= right
        case _:
            return left <= right


def ami_for(instance_labels: Mapping[str, str], amis: Iterable[ResolvedAMI]) -> ResolvedAMI | None:
    """The AMI for an instance type with those labels, or None if none of them runs on it.

    The AMIs of a class's status are sorted newest first, so the first match is the one to use.
    """
    return next(
        (a for a in amis if all(met(r.operator, r.values, instance_labels.get(r.key)) for r in a.requirements)), None
    )
