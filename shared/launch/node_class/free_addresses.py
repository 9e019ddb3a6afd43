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

    from shared.api.nodeclass import ResolvedSubnet
    from shared.base.dynamodb_rows import Row
    from shared.cluster.connect import ClusterInfo

NODE_ADDRESSES = 17
"""Free addresses that a node needs in its subnet: its own, and sixteen for pods.

With prefix delegation the VPC CNI takes a prefix of /28 first, which is sixteen addresses. Without, it takes as many as
the node's first network interface holds: 4 to 15 for most instance types up to 4xlarge, up to 50 for larger ones, which
can use fewer (Amazon VPC CNI, "WARM_ENI_TARGET" and "ENABLE_PREFIX_DELEGATION").
"""
_IPV6_NODE_ADDRESSES = 1
"""In an IPv6 cluster pods have no IPv4 addresses."""
TTL = timedelta(seconds=150)
"""How long a short subnet is remembered: lifecycle repeats it each minute."""

PARTITION = "short-subnets"


class ShortSubnet(Struct, kw_only=True):
    """A subnet with fewer free addresses than a node needs."""

    id: str
    zone: str
    free_addresses: int

    def __str__(self) -> str:
        return f"{self.id} in {self.zone} has {plural(self.free_addresses, 'free address')}"


def node_addresses(cluster: ClusterInfo) -> int:
    """How many free IPv4 addresses a node of the cluster needs in its subnet."""
    return _IPV6_NODE_ADDRESSES if cluster.is_ipv6 else NODE_ADDRESSES


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
