"""Subnets that are short of addresses: lifecycle looks each minute, and decisions leave their zones out.

A node takes an address for itself, and the VPC CNI takes more for its pods. Where a zone has too few left, the launch
fails, or its node has no addresses for pods. So the zones of short subnets aren't offered, unless a NodePool has no
other. What is known is in DynamoDB for :data:`TTL`, so a number that nobody repeats is soon forgotten; pods without
another choice are launched there all the same, and EC2 decides.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING

from shared.base import dynamodb_rows
from shared.base.aws import PAGES, filter_chunks
from shared.base.plurals import plural
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef
    from mypy_boto3_ec2 import EC2Client

    from shared.api.nodeclass import EC2NodeClassSpec, ResolvedSubnet
    from shared.base.dynamodb_rows import Row

PREFIX_ADDRESSES = 16
"""The addresses of a prefix, a /28."""
NODE_ADDRESSES = 1 + PREFIX_ADDRESSES
"""Free addresses that a node needs in its subnet at least: its own, and sixteen for pods.

With prefix delegation the VPC CNI takes a prefix first. Without, it takes as many as the node's first network interface
holds: 4 to 15 for most instance types up to 4xlarge, up to 50 for larger ones, which can use fewer (Amazon VPC CNI,
"WARM_ENI_TARGET" and "ENABLE_PREFIX_DELEGATION").
"""
_WITHOUT_ADDRESSES = "efa-only"
_IPV6_NODE_ADDRESSES = 1
"""In an IPv6 cluster pods have no IPv4 addresses."""
TTL = timedelta(seconds=150)
"""How long a short subnet is remembered: lifecycle repeats it each minute."""

PARTITION = "short-subnets"


class ShortSubnet(Struct, kw_only=True):
    """A subnet with fewer free addresses than a node of some class needs."""

    id: str
    zone: str
    free_addresses: int

    def __str__(self) -> str:
        return f"{self.id} in {self.zone} has {plural(self.free_addresses, 'free address')}"


def node_addresses(spec: EC2NodeClassSpec, *, ipv6: bool = False) -> int:
    """How many free IPv4 addresses a node of the class needs in its subnet.

    Each interface that it is launched with has an address of its own, and as many prefixes as ``ipPrefixCount`` says.

    >>> from shared.api.nodeclass import EC2NodeClassSpec
    >>> node_addresses(EC2NodeClassSpec()), node_addresses(EC2NodeClassSpec(ip_prefix_count=3))
    (17, 49)
    """
    if ipv6:
        return _IPV6_NODE_ADDRESSES
    with_addresses = [nic for nic in spec.network_interfaces if nic.get("interfaceType") != _WITHOUT_ADDRESSES]
    interfaces = max(1, len(with_addresses))
    at_launch = interfaces * (1 + (spec.ip_prefix_count or 0) * PREFIX_ADDRESSES)
    return max(NODE_ADDRESSES, at_launch)


def short_for(spec: EC2NodeClassSpec, short: Iterable[ShortSubnet]) -> tuple[ShortSubnet, ...]:
    """Of the remembered short subnets, those that are short for nodes of the class: others may need more."""
    needed = node_addresses(spec)
    return tuple(subnet for subnet in short if subnet.free_addresses < needed)


def short_subnets(ec2: EC2Client, subnets: Iterable[ResolvedSubnet], *, needed: int) -> tuple[ShortSubnet, ...]:
    """Those of the subnets with fewer free addresses now, by id. EC2 isn't called for subnets of a single zone.

    Raises:
        ClientError: EC2 failed.
    """
    zones = {s.id: s.zone for s in subnets}
    if len(set(zones.values())) <= 1:
        return ()
    short: list[ShortSubnet] = []
    for values in filter_chunks(sorted(zones)):
        pages = ec2.get_paginator("describe_subnets").paginate(
            Filters=[{"Name": "subnet-id", "Values": values}], PaginationConfig=PAGES
        )
        short += [
            ShortSubnet(id=s["SubnetId"], zone=zones[s["SubnetId"]], free_addresses=s["AvailableIpAddressCount"])
            for page in pages
            for s in page["Subnets"]
            if s["AvailableIpAddressCount"] < needed
        ]
    return tuple(sorted(short, key=lambda s: s.id))


def remember(dynamodb: DynamoDBClient, table: str, short: Iterable[ShortSubnet], *, now: datetime) -> None:
    """Store the short subnets; others are forgotten when their rows expire.

    Raises:
        ClientError: DynamoDB failed.
    """
    expires = str(int((now + TTL).timestamp()))
    items: list[dict[str, AttributeValueTypeDef]] = [
        {
            "pk": {"S": PARTITION},
            "sk": {"S": subnet.id},
            "zone": {"S": subnet.zone},
            "free": {"N": str(subnet.free_addresses)},
            "expires": {"N": expires},
        }
        for subnet in short
    ]
    dynamodb_rows.put_rows(dynamodb, table, items)


def remembered(rows: Iterable[Row]) -> tuple[ShortSubnet, ...]:
    """The short subnets of the rows, by id."""
    return tuple(
        ShortSubnet(id=item["sk"]["S"], zone=item["zone"]["S"], free_addresses=int(item["free"]["N"])) for item in rows
    )


def short_zones(
    subnets: Iterable[ResolvedSubnet], short: Iterable[ShortSubnet]
) -> Mapping[str, tuple[ShortSubnet, ...]]:
    """The zones all of whose ``subnets`` are short, with these; none if that holds for every zone. Pure."""
    by_id = {s.id: s for s in short}
    by_zone: defaultdict[str, list[ShortSubnet | None]] = defaultdict(list)
    for subnet in subnets:
        by_zone[subnet.zone].append(by_id.get(subnet.id))
    full = {
        zone: known
        for zone, of_zone in sorted(by_zone.items())
        if len(known := tuple(s for s in of_zone if s is not None)) == len(of_zone)
    }
    return full if len(full) < len(by_zone) else {}
