"""The on-demand capacity reservations that a node class selects: active ones for Linux with default tenancy.

A reservation that isn't there yet, is full or has ended is no obstacle: NodePools that allow on-demand launch that. So
terms that select none leave the class ready, as in Karpenter, and only a message says so. It names those that were
selected and can't be used. A capacity block is *expiring* in its last 40 minutes: nothing is launched into it any more,
and its nodes are drained, because EC2 begins to terminate its instances half an hour before its end (EC2 User Guide,
"How Capacity Blocks work").
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.api.meta import EventReason
from shared.api.nodeclass import ACTIVE, CAPACITY_BLOCK, EXPIRING, ResolvedCapacityReservation
from shared.base.aws import error_code
from shared.base.struct import Struct
from shared.launch.node_class.selector_terms import (
    no_match_message,
    quoted_tags,
    raise_denied,
    tag_filters,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from mypy_boto3_ec2.type_defs import CapacityReservationTypeDef, FilterTypeDef

    from shared.api.nodeclass import CapacityReservationSelectorTerm, EC2NodeClass
    from shared.launch.node_class.ec2_descriptions import Ec2Descriptions

_FIELD = "spec.capacityReservationSelectorTerms"
_PERMISSION = "ec2:DescribeCapacityReservations"
_NOT_FOUND = "InvalidCapacityReservationId.NotFound"
_DEFAULT = "default"
DRAINED_BEFORE_END = timedelta(minutes=40)
"""When a capacity block's nodes are drained: ten minutes before EC2 begins to terminate them. Karpenter's."""
NO_RESERVATIONS = EventReason("CapacityReservationsNotFound")


class SelectedReservations(Struct):
    """The usable reservations by id, and why others can't be used: by id, in words."""

    usable: tuple[ResolvedCapacityReservation, ...] = ()
    unusable: dict[str, str] = {}


def select(ec2: Ec2Descriptions, node_class: EC2NodeClass, *, now: datetime) -> SelectedReservations:
    """The reservations of the class's terms; for a class without terms none, and EC2 is not called.

    Raises:
        NotFoundError: the lookup is denied.
    """
    terms = node_class.spec.capacity_reservation_selector_terms
    usable: dict[str, ResolvedCapacityReservation] = {}
    unusable: dict[str, str] = {}
    for term in terms:
        for reservation in _describe(ec2, term):
            reservation_id = reservation["CapacityReservationId"]
            if term.id and reservation_id != term.id:
                continue
            if reason := _unusable_reason(reservation):
                unusable[reservation_id] = reason
            else:
                usable[reservation_id] = _resolved(reservation, now)
    return SelectedReservations(
        usable=tuple(usable[reservation_id] for reservation_id in sorted(usable)), unusable=unusable
    )


def none_selected(node_class: EC2NodeClass, unusable: Mapping[str, str]) -> str:
    """That the terms of the class select no usable reservation, in words; ``unusable`` as selected."""
    described = [_described(term, i) for i, term in enumerate(node_class.spec.capacity_reservation_selector_terms)]
    message = no_match_message("usable active capacity reservation", described)
    return message + "".join(f"; {reservation_id} is {unusable[reservation_id]}" for reservation_id in sorted(unusable))


def _describe(ec2: Ec2Descriptions, term: CapacityReservationSelectorTerm) -> list[CapacityReservationTypeDef]:
    try:
        return ec2.capacity_reservations(_filters(term))
    except ClientError as error:
        if error_code(error) == _NOT_FOUND:
            return []
        raise_denied(error, _PERMISSION, f"{_FIELD} can't be looked up")


def _filters(term: CapacityReservationSelectorTerm) -> list[FilterTypeDef]:
    filters: list[FilterTypeDef] = [{"Name": "state", "Values": ["active"]}]
    if term.owner_id:
        filters.append({"Name": "owner-id", "Values": [term.owner_id]})
    if term.instance_match_criteria:
        filters.append({"Name": "instance-match-criteria", "Values": [term.instance_match_criteria]})
    return filters + tag_filters(term.tags)


def _unusable_reason(reservation: CapacityReservationTypeDef) -> str:
    """Why no node can be launched into the reservation; "" if one can."""
    kind, tenancy = reservation.get("ReservationType", _DEFAULT), reservation.get("Tenancy", "default")
    platform = reservation.get("InstancePlatform", "Linux/UNIX")
    if kind not in {_DEFAULT, CAPACITY_BLOCK}:
        return f"a {kind}, which Tenon can't launch into"
    if tenancy != "default":
        return f"for {tenancy} hardware"
    return "" if platform.startswith("Linux") else f"for {platform}"


def _resolved(reservation: CapacityReservationTypeDef, now: datetime) -> ResolvedCapacityReservation:
    kind, end = reservation.get("ReservationType", _DEFAULT), reservation.get("EndDate")
    is_expiring = kind == CAPACITY_BLOCK and end is not None and now >= end - DRAINED_BEFORE_END
    return ResolvedCapacityReservation(
        id=reservation["CapacityReservationId"],
        instance_type=reservation["InstanceType"],
        availability_zone=reservation["AvailabilityZone"],
        available_instance_count=reservation.get("AvailableInstanceCount", 0),
        reservation_type=kind,
        instance_match_criteria=reservation.get("InstanceMatchCriteria", ""),
        state=EXPIRING if is_expiring else ACTIVE,
        end_time=end,
        interruptible=reservation.get("Interruptible", False),
        owner_id=reservation.get("OwnerId", ""),
    )


def _described(term: CapacityReservationSelectorTerm, index: int) -> str:
    if term.id:
        return f'{_FIELD}[{index}].id "{term.id}"'
    if term.tags:
        return f"{_FIELD}[{index}].tags {quoted_tags(term.tags)}"
    return f'{_FIELD}[{index}].ownerID "{term.owner_id}"'
