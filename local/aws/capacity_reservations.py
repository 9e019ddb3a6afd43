"""On-demand capacity reservations, which moto lacks: a number of instances of a type that is reserved in a zone.

Instances that are launched into a reservation use it until they are terminated; a launch into a full one fails. When it
ends, they run on without it.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from local.aws import backends
from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

CAPACITY_BLOCK = "capacity-block"
_TERMINATED_BEFORE_END = timedelta(minutes=30)


class Reservation(MutableStruct, kw_only=True):
    """One reservation of ``total`` instances; ``used`` are the running ones by id, moto's objects."""

    id: str
    instance_type: str
    zone: str
    total: int
    tags: Mapping[str, str]
    criteria: str
    owner: str
    created: datetime
    kind: str = "default"
    end: datetime | None = None
    used: dict[str, Any] = {}
    state: str = "active"

    @property
    def free(self) -> int:
        """The number of unused instances."""
        return max(0, self.total - len(self.used))


class CapacityReservations:
    """The reservations of an account; tests change them while the world runs."""

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
        kind: str = "default",
        end: datetime | None = None,
    ) -> str:
        """Reserve ``total`` instances; returns the reservation's id. ``kind`` may be "capacity-block"."""
        digest = hashlib.sha256(f"{instance_type} {zone} {len(self._all)}".encode()).hexdigest()[:17]
        reservation = Reservation(
            id=f"cr-{digest}",
            instance_type=instance_type,
            zone=zone,
            total=total,
            tags=dict(tags or {}),
            criteria=criteria,
            owner=owner,
            created=now,
            kind=kind,
            end=end,
        )
        self._all[reservation.id] = reservation
        return reservation.id

    def resize(self, reservation_id: str, total: int) -> None:
        """Change the number of reserved instances; running instances stay.

        Raises:
            KeyError: there is no such reservation.
        """
        self._all[reservation_id].total = total

    def free(self, reservation_id: str, instance_type: str, zone: str) -> int:
        """The unused instances of that type and zone; 0 if the reservation is for others or doesn't exist."""
        reservation = self._all.get(reservation_id)
        if reservation is None or (reservation.instance_type, reservation.zone) != (instance_type, zone):
            return 0
        return reservation.free if reservation.state == "active" else 0

    def is_block(self, reservation_id: str) -> bool:
        """Whether the reservation is a capacity block."""
        reservation = self._all.get(reservation_id)
        return reservation is not None and reservation.kind == CAPACITY_BLOCK

    def terminated_at(self, reservation_id: str) -> datetime | None:
        """When EC2 begins to terminate the instances of a capacity block; None for other reservations."""
        reservation = self._all.get(reservation_id)
        if reservation is None or reservation.kind != CAPACITY_BLOCK or reservation.end is None:
            return None
        return reservation.end - _TERMINATED_BEFORE_END

    def is_active(self, reservation_id: str) -> bool:
        """Whether the reservation exists and hasn't ended."""
        reservation = self._all.get(reservation_id)
        return reservation is not None and reservation.state == "active"

    def use(self, reservation_id: str, instances: Iterable[Any]) -> None:
        """Record instances (moto's) that were launched into the reservation."""
        self._all[reservation_id].used.update({instance.id: instance for instance in instances})

    def end(self, reservation_id: str, *, state: str = "expired") -> None:
        """Let the reservation expire, or cancel it; its instances run on, billed on-demand.

        Raises:
            KeyError: there is no such reservation.
        """
        reservation = self._all[reservation_id]
        reservation.state = state
        for instance in reservation.used.values():
            instance.capacity_reservation_id = None
        reservation.used.clear()

    def release(self, instance_id: str) -> None:
        """Release the reservation of a terminated instance."""
        for reservation in self._all.values():
            reservation.used.pop(instance_id, None)

    def describe(self, filters: Mapping[str, Sequence[str]], ids: Sequence[str] = ()) -> list[dict[str, Any]]:
        """DescribeCapacityReservations' entries, by id. Filters: state, owner-id, criteria, type, zone and tags."""
        return [
            _entry(r)
            for r in sorted(self._all.values(), key=lambda r: r.id)
            if (not ids or r.id in ids) and all(_matches(r, name, values) for name, values in filters.items())
        ]


def _matches(reservation: Reservation, name: str, values: Sequence[str]) -> bool:
    if name.startswith("tag:"):
        return reservation.tags.get(name.removeprefix("tag:")) in values
    if name == "tag-key":
        return bool(reservation.tags.keys() & set(values))
    attributes = {
        "state": reservation.state,
        "owner-id": reservation.owner,
        "instance-match-criteria": reservation.criteria,
        "instance-type": reservation.instance_type,
        "availability-zone": reservation.zone,
    }
    return attributes[name] in values


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
        "State": reservation.state,
        "InstanceMatchCriteria": reservation.criteria,
        "ReservationType": reservation.kind,
        **({"EndDate": reservation.end} if reservation.end is not None else {}),
        "CreateDate": reservation.created,
        "Tags": [{"Key": key, "Value": value} for key, value in sorted(reservation.tags.items())],
    }
