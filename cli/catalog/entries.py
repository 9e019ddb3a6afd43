"""Instance types as people and programs read them: the entries of ``tenon catalog --json``.

Quantities are Kubernetes', prices USD per hour. The Region is left out of the labels: it is the same for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.json_output import Output
from shared.api import labels
from shared.api.quantity import format_resources

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.instance_types.instance_type import InstanceType


class OfferingEntry(Output, frozen=True, kw_only=True):
    """A zone and capacity type of an instance type. ``price`` is USD per hour."""

    zone: str
    capacity_type: str
    price: float
    available: bool


class CatalogEntry(Output, frozen=True, kw_only=True):
    """An instance type; ``allocatable`` is capacity without overhead."""

    name: str
    capacity: dict[str, str]
    allocatable: dict[str, str]
    overhead: dict[str, str]
    labels: dict[str, str]
    offerings: list[OfferingEntry]


def entries(instance_types: Iterable[InstanceType]) -> list[CatalogEntry]:
    """An entry a type, offerings by zone and capacity type."""
    return [_entry(t) for t in instance_types]


def _entry(instance_type: InstanceType) -> CatalogEntry:
    return CatalogEntry(
        name=instance_type.name,
        capacity=format_resources(instance_type.capacity),
        allocatable=format_resources(instance_type.allocatable),
        overhead=format_resources(instance_type.overhead),
        labels={k: instance_type.labels[k] for k in sorted(instance_type.labels) if k != labels.REGION},
        offerings=[
            OfferingEntry(zone=o.zone, capacity_type=o.capacity_type, price=o.price, available=o.available)
            for o in sorted(instance_type.offerings, key=lambda o: (o.zone, o.capacity_type))
        ],
    )
