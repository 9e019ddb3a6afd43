"""Instance types and their offerings: the values that the provider returns and scheduling reads. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.quantity import Resources

OfferingKey = tuple[str, str, str]
"""Capacity type, instance type, zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offering:
    """A zone and capacity type in which an instance type is sold, and its price in USD per hour.

    ``labels`` are those of this offering only, such as a capacity reservation's id.
    """

    zone: str
    capacity_type: str
    price: float
    available: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class InstanceType:
    """An instance type: its labels (one value each), its resources as exact integers, and its offerings.

    ``overhead`` is what the kubelet and the system reserve; pods get ``capacity - overhead``.
    """

    name: str
    labels: Mapping[str, str]
    capacity: Resources
    overhead: Resources
    offerings: tuple[Offering, ...]

    @cached_property
    def allocatable(self) -> Resources:
        """The resources for pods, never below zero."""
        return {name: max(0, amount - self.overhead.get(name, 0)) for name, amount in self.capacity.items()}
