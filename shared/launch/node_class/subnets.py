"""Which subnets a class selects, and which one of a zone an instance goes to.

The one with the most free addresses, minus those already promised, because CreateFleet refuses two of a zone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.ami_family.families import is_legacy
from shared.api.nodeclass import ResolvedSubnet
from shared.launch.node_class import selector_terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef, SubnetTypeDef

    from shared.api.nodeclass import EC2NodeClass, SubnetSelectorTerm

_PERMISSION = "ec2:DescribeSubnets"


@dataclass(frozen=True)
class Subnet:
    """A subnet and how many addresses it has free."""

    id: str
    zone: str
    zone_id: str
    free: int

    @property
    def resolved(self) -> ResolvedSubnet:
        """As the class's status holds it."""
        return ResolvedSubnet(id=self.id, zone=self.zone, zone_id=self.zone_id)


def select(ec2: EC2Client, node_class: EC2NodeClass) -> tuple[Subnet, ...]:
    """The subnets of the class's terms, those with the most free addresses first.

    Raises:
        NotFoundError: there is none, or they may not be looked up.
    """
    field = "spec.subnetSelector" if is_legacy(node_class.kind) else "spec.subnetSelectorTerms"
    terms = node_class.spec.subnet_selector_terms
    if not terms:
        raise selector_terms.NotFoundError("SubnetsNotFound", f"{field} is empty: it must select subnets by tags or id")
    found: dict[str, Subnet] = {}
    for term in terms:
        try:
            pages = ec2.get_paginator("describe_subnets").paginate(Filters=_filters(term))
            found |= {s["SubnetId"]: _subnet(s) for page in pages for s in page["Subnets"]}
        except ClientError as error:
            selector_terms.denied(error, _PERMISSION, f"{field} can't be looked up")
    if not found:
        described = [_described(t, field, i, legacy=is_legacy(node_class.kind)) for i, t in enumerate(terms)]
        raise selector_terms.NotFoundError("SubnetsNotFound", selector_terms.none_matches("subnet", described))
    return tuple(sorted(found.values(), key=lambda s: (-s.free, s.id)))


def refreshed(ec2: EC2Client, subnets: Sequence[ResolvedSubnet]) -> tuple[Subnet, ...]:
    """The subnets with their free addresses of now; asks EC2 only if some zone has several to choose from."""
    if len({s.zone for s in subnets}) == len(subnets):
        return tuple(Subnet(s.id, s.zone, s.zone_id, 0) for s in subnets)
    answer = ec2.describe_subnets(Filters=[{"Name": "subnet-id", "Values": [s.id for s in subnets]}])
    return tuple(_subnet(s) for s in answer["Subnets"])


def best(subnets: Iterable[Subnet], promised: Mapping[str, int]) -> dict[str, Subnet]:
    """By zone: the subnet with the most free addresses after ``promised`` (by subnet id) are taken off."""
    chosen: dict[str, Subnet] = {}
    for subnet in sorted(subnets, key=lambda s: (promised.get(s.id, 0) - s.free, s.id)):
        chosen.setdefault(subnet.zone, subnet)
    return chosen


def _filters(term: SubnetSelectorTerm) -> list[FilterTypeDef]:
    if term.id:
        return [{"Name": "subnet-id", "Values": [term.id]}]
    return selector_terms.tag_filters(term.tags)


def _subnet(described: SubnetTypeDef) -> Subnet:
    return Subnet(
        id=described["SubnetId"],
        zone=described["AvailabilityZone"],
        zone_id=described.get("AvailabilityZoneId", ""),
        free=described.get("AvailableIpAddressCount", 0),
    )


def _described(term: SubnetSelectorTerm, field: str, index: int, *, legacy: bool) -> str:
    if legacy:
        return f"{field} {selector_terms.quoted({'aws-ids': term.id} if term.id else term.tags)}"
    return (
        f'{field}[{index}].id "{term.id}"' if term.id else f"{field}[{index}].tags {selector_terms.quoted(term.tags)}"
    )
