"""Instance types as people and programs read them: the entries of ``tenon catalog --json``.

Quantities are Kubernetes', prices USD per hour. The Region is left out of the labels: it is the same for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.api import labels
from shared.api.quantity import format_resources

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.instance_types.instance_type import InstanceType


def entries(instance_types: Iterable[InstanceType]) -> list[dict[str, Any]]:
    """An entry a type: name, capacity, allocatable, overhead, labels, offerings by zone and capacityType."""
    return [_entry(t) for t in instance_types]


def _entry(instance_type: InstanceType) -> dict[str, Any]:
    return {
        "name": instance_type.name,
        "capacity": format_resources(instance_type.capacity),
        "allocatable": format_resources(instance_type.allocatable),
        "overhead": format_resources(instance_type.overhead),
        "labels": {k: instance_type.labels[k] for k in sorted(instance_type.labels) if k != labels.REGION},
        "offerings": [
            {"zone": o.zone, "capacityType": o.capacity_type, "price": o.price, "available": o.available}
            for o in sorted(instance_type.offerings, key=lambda o: (o.zone, o.capacity_type))
        ],
    }
