"""Which on-demand capacity reservations a class selects: active ones for Linux on shared hardware.

Capacity blocks are left out, and said to be: they are launched by another market type and end by themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.api.nodeclass import ResolvedCapacityReservation
from shared.launch.node_class import selector_terms

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import CapacityReservationTypeDef, FilterTypeDef

    from shared.api.nodeclass import CapacityReservationSelectorTerm, EC2NodeClass

_FIELD = "spec.capacityReservationSelectorTerms"
_UNKNOWN = "InvalidCapacityReservationId.NotFound"


def select(ec2: EC2Client, node_class: EC2NodeClass) -> tuple[ResolvedCapacityReservation, ...]:
    """The reservations of the class's terms, by id; a class without terms asks for none, and EC2 is not asked.

    Raises:
        NotFoundError: the terms select none, or they may not be looked up.
    """
    terms = node_class.spec.capacity_reservation_selector_terms
    found: dict[str, ResolvedCapacityReservation] = {}
    unfit: dict[str, str] = {}
    for term in terms:
        try:
            pages = ec2.get_paginator("describe_capacity_reservations").paginate(Filters=_filters(term))
            described = [r for page in pages for r in page["CapacityReservations"]]
        except ClientError as error:
            if selector_terms.code(error) == _UNKNOWN:
                continue
            selector_terms.denied(error, "ec2:DescribeCapacityReservations", f"{_FIELD} can't be looked up")
        for reservation in described:
            id_ = reservation["CapacityReservationId"]
            if term.id and id_ != term.id:
                continue
            if obstacle := _unfit(reservation):
                unfit[id_] = obstacle
            else:
                found[id_] = _resolved(reservation)
    if terms and not found:
        named = [_described(term, i) for i, term in enumerate(terms)]
        message = selector_terms.none_matches("usable active capacity reservation", named)
        message += "".join(f"; {id_} is {unfit[id_]}" for id_ in sorted(unfit))
        raise selector_terms.NotFoundError("CapacityReservationsNotFound", message)
    return tuple(found[id_] for id_ in sorted(found))


def _filters(term: CapacityReservationSelectorTerm) -> list[FilterTypeDef]:
    filters: list[FilterTypeDef] = [{"Name": "state", "Values": ["active"]}]
    if term.owner_id:
        filters.append({"Name": "owner-id", "Values": [term.owner_id]})
    if term.instance_match_criteria:
        filters.append({"Name": "instance-match-criteria", "Values": [term.instance_match_criteria]})
    return filters + selector_terms.tag_filters(term.tags)


def _unfit(reservation: CapacityReservationTypeDef) -> str:
    """Why no node can be launched into it; "" if one can."""
    kind, tenancy = reservation.get("ReservationType", "default"), reservation.get("Tenancy", "default")
    platform = reservation.get("InstancePlatform", "Linux/UNIX")
    if kind != "default":
        return f"a {kind}, which Tenon can't launch into"
    if tenancy != "default":
        return f"for {tenancy} hardware"
    return "" if platform.startswith("Linux") else f"for {platform}"


def _resolved(reservation: CapacityReservationTypeDef) -> ResolvedCapacityReservation:
    return ResolvedCapacityReservation(
        id=reservation["CapacityReservationId"],
        instance_type=reservation["InstanceType"],
        availability_zone=reservation["AvailabilityZone"],
        available_instance_count=reservation.get("AvailableInstanceCount", 0),
        reservation_type=reservation.get("ReservationType", "default"),
        interruptible=reservation.get("Interruptible", False),
        owner_id=reservation.get("OwnerId", ""),
    )


def _described(term: CapacityReservationSelectorTerm, index: int) -> str:
    if term.id:
        return f'{_FIELD}[{index}].id "{term.id}"'
    if term.tags:
        return f"{_FIELD}[{index}].tags {selector_terms.quoted(term.tags)}"
    return f'{_FIELD}[{index}].ownerID "{term.owner_id}"'
