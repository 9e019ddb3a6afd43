"""The subnets that a node class selects, and the subnet of each zone that instances are launched into.

CreateFleet rejects two subnets of a zone, so one is chosen: the one with the most free addresses, without the addresses
that launches of the same run have reserved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.api.nodeclass import ResolvedSubnet
from shared.base.aws import filter_chunks
from shared.base.struct import Struct
from shared.launch.node_class.selector_terms import (
    NotFoundError,
    no_match_message,
    quoted_tags,
    raise_denied,
    tag_filters,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef, SubnetTypeDef

    from shared.api.nodeclass import EC2NodeClass, SubnetSelectorTerm
    from shared.launch.node_class.ec2_descriptions import Ec2Descriptions

_PERMISSION = "ec2:DescribeSubnets"
_TERMS = "subnetSelectorTerms"


class Subnet(Struct):
    """A subnet and its number of free addresses."""

    id: str
    zone: str
    zone_id: str
    free_addresses: int

    @property
    def resolved(self) -> ResolvedSubnet:
        """The subnet as the class's status has it."""
        return ResolvedSubnet(id=self.id, zone=self.zone, zone_id=self.zone_id)


def select(ec2: Ec2Descriptions, node_class: EC2NodeClass) -> tuple[Subnet, ...]:
    """The subnets of the class's terms, those with the most free addresses first.

    Raises:
        NotFoundError: the terms select none, or the lookup is denied.
    """
    field = node_class.selector_path(_TERMS)
    terms = node_class.spec.subnet_selector_terms
    if not terms:
        raise NotFoundError("SubnetsNotFound", f"{field} is empty: it must select subnets by tags or id")
    selected: dict[str, Subnet] = {}
    for term in terms:
        try:
            selected |= {s["SubnetId"]: _subnet(s) for s in ec2.subnets(_filters(term))}
        except ClientError as error:
            raise_denied(error, _PERMISSION, f"{field} can't be looked up")
    if not selected:
        described = [_described(node_class, i, t) for i, t in enumerate(terms)]
        raise NotFoundError("SubnetsNotFound", no_match_message("subnet", described))
    return tuple(sorted(selected.values(), key=lambda s: (-s.free_addresses, s.id)))


def with_free_addresses(ec2: EC2Client, subnets: Sequence[Subnet]) -> tuple[Subnet, ...]:
    """The subnets with their free addresses now; one that EC2's answer leaves out stays as it is."""
    described: dict[str, Subnet] = {}
    for ids in filter_chunks([s.id for s in subnets]):
        response = ec2.describe_subnets(Filters=[{"Name": "subnet-id", "Values": ids}])
        described |= {s["SubnetId"]: _subnet(s) for s in response["Subnets"]}
    return tuple(described.get(s.id, s) for s in subnets)


def best(subnets: Iterable[Subnet], reserved_addresses: Mapping[str, int]) -> dict[str, Subnet]:
    """By zone: the subnet with the most free addresses, without ``reserved_addresses`` (by subnet id)."""
    by_zone: dict[str, Subnet] = {}
    for subnet in sorted(subnets, key=lambda s: (reserved_addresses.get(s.id, 0) - s.free_addresses, s.id)):
        by_zone.setdefault(subnet.zone, subnet)
    return by_zone


def _filters(term: SubnetSelectorTerm) -> list[FilterTypeDef]:
    return [{"Name": "subnet-id", "Values": [term.id]}] if term.id else tag_filters(term.tags)


def _subnet(described: SubnetTypeDef) -> Subnet:
    return Subnet(
        id=described["SubnetId"],
        zone=described["AvailabilityZone"],
        zone_id=described.get("AvailabilityZoneId", ""),
        free_addresses=described.get("AvailableIpAddressCount", 0),
    )


def _described(node_class: EC2NodeClass, index: int, term: SubnetSelectorTerm) -> str:
    if term.id:
        return f'{node_class.selector_path(_TERMS, index, "id")} "{term.id}"'
    return f"{node_class.selector_path(_TERMS, index, 'tags')} {quoted_tags(term.tags)}"
