"""On-demand capacity reservations, which moto lacks: a number of instances of a type kept free in a zone.

What is launched into one uses it up and gives it back when it is terminated; a launch that targets a full one fails.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from local.aws import backends

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime


@dataclass(kw_only=True)
class Reservation:
    """One reservation; ``total`` instances of which those in ``used`` (by id) run."""

    id: str
    instance_type: str
    zone: str
    total: int
    tags: Mapping[str, str]
    criteria: str
    owner: str
    created: datetime
    used: set[str] = field(default_factory=set)

    @property
    def free(self) -> int:
        """How many of its instances nobody uses."""
        return max(0, self.total - len(self.used))


class Reservations:
    """The reservations of an account; changed while the world runs."""

    def __init__(self) -> None:
        self._all: dict[str, Reservation] = {}

    def add(
        self,
        instance_type: str,
        zone: str,
        *,
        total: int,
        now: datetime,
        tags: Mapping[str, str] | None = None,
        criteria: str = "targeted",
        owner: str = backends.ACCOUNT,
    ) -> str:
        """Reserve so many instances; returns the reservation's id."""
        digest = hashlib.sha256(f"{instance_type} {zone} {len(self._all)}".encode()).hexdigest()[:17]
        made = Reservation(
            id=f"cr-{digest}",
            instance_type=instance_type,
            zone=zone,
            total=total,
            tags=dict(tags or {}),
            criteria=criteria,
            owner=owner,
            created=now,
        )
        self._all[made.id] = made
        return made.id

    def resize(self, reservation_id: str, total: int) -> None:
        """Have it be for so many instances from now on; what runs stays.

        Raises:
            KeyError: there is none of that id.
        """
        self._all[reservation_id].total = total

    def room(self, reservation_id: str, instance_type: str, zone: str) -> int:
        """How many instances of the type it can take in that zone; 0 if it is for others, or isn't there."""
        found = self._all.get(reservation_id)
        return found.free if found and (found.instance_type, found.zone) == (instance_type, zone) else 0

    def use(self, reservation_id: str, instance_ids: Sequence[str]) -> None:
        """Instances were launched into it."""
        self._all[reservation_id].used.update(instance_ids)

    def give_back(self, instance_id: str) -> None:
        """An instance was terminated."""
        for reservation in self._all.values():
            reservation.used.discard(instance_id)

    def described(self, filters: Mapping[str, Sequence[str]], ids: Sequence[str] = ()) -> list[dict[str, Any]]:
        """DescribeCapacityReservations' entries, by id. Filters: state, owner-id, criteria, type, zone and tags."""
        return [
            _entry(r)
            for r in sorted(self._all.values(), key=lambda r: r.id)
            if (not ids or r.id in ids) and all(_meets(r, name, values) for name, values in filters.items())
        ]


def _meets(reservation: Reservation, name: str, values: Sequence[str]) -> bool:
    if name.startswith("tag:"):
        return reservation.tags.get(name.removeprefix("tag:")) in values
    if name == "tag-key":
        return bool(reservation.tags.keys() & set(values))
    of = {
        "state": "active",
        "owner-id": reservation.owner,
        "instance-match-criteria": reservation.criteria,
        "instance-type": reservation.instance_type,
        "availability-zone": reservation.zone,
    }
    return of[name] in values


def _entry(reservation: Reservation) -> dict[str, Any]:
    return {
        "CapacityReservationId": reservation.id,
        "OwnerId": reservation.owner,
        "InstanceType": reservation.instance_type,
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": reservation.zone,
        "Tenancy": "default",
        "TotalInstanceCount": reservation.total,
        "AvailableInstanceCount": reservation.free,
        "State": "active",
        "InstanceMatchCriteria": reservation.criteria,
        "ReservationType": "default",
        "CreateDate": reservation.created,
        "Tags": [{"Key": key, "Value": value} for key, value in sorted(reservation.tags.items())],
    }
