"""Which image of a class an instance type boots from: the first whose requirements its labels meet.

The images of a class's status stand newest first, so the first is the one to use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.api.nodeclass import AMIRequirement, ResolvedAMI


def image_for(instance_labels: Mapping[str, str], images: Iterable[ResolvedAMI]) -> ResolvedAMI | None:
    """The image for a type with those labels, or None if none of them runs on it."""
    return next((i for i in images if all(_met(r, instance_labels) for r in i.requirements)), None)


def _met(requirement: AMIRequirement, instance_labels: Mapping[str, str]) -> bool:
    value = instance_labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False
