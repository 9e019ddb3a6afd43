"""Checks of the network: free addresses in subnets, and what functions reach from theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli.preflight.finding import failed, passed
from shared.base.plurals import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cli.preflight.finding import Finding
    from shared.base.aws import UntypedClient

SUBNETS, REACHABILITY = "free addresses", "functions' network"
_MIN_FREE = 16
"""Addresses: a node of a middle size with the addresses that the VPC CNI keeps warm."""
SERVICES = ("dynamodb", "ec2", "eks", "events", "s3", "sqs", "ssm")
"""The services that functions in a VPC call (docs/private-clusters.md); dynamodb and s3 have gateway endpoints."""
_EVERYWHERE = "0.0.0.0/0"
_LEADS_OUT = ("NatGatewayId", "TransitGatewayId", "NetworkInterfaceId", "VpcPeeringConnectionId")


def free_addresses(client: Callable[[str], Any], subnets: Sequence[str]) -> Iterator[Finding]:
    """Whether each subnet has addresses for nodes and pods."""
    described = client("ec2").describe_subnets(SubnetIds=list(subnets))["Subnets"]
    full = [s for s in described if s["AvailableIpAddressCount"] < _MIN_FREE]
    if full:
        names = ", ".join(f"{s['SubnetId']} ({s['AvailabilityZone']}: {s['AvailableIpAddressCount']})" for s in full)
        yield failed(
            SUBNETS,
            f"few addresses are free in {names}",
            "let node classes select larger subnets (spec.subnetSelectorTerms), or add a CIDR to the VPC",
        )
    else:
        free = sum(s["AvailableIpAddressCount"] for s in described)
        yield passed(SUBNETS, f"{free:,} in {plural(len(described), 'subnet')}")


def reachability(
    client: Callable[[str], Any], description: Mapping[str, Any], *, subnets: Sequence[str]
) -> Iterator[Finding]:
    """Whether functions reach the cluster's endpoint, and from ``subnets`` (if given) AWS's services."""
    network = description.get("resourcesVpcConfig", {})
    if not subnets:
        yield _from_outside(network)
        return
    ec2 = client("ec2")
    isolated = [subnet for subnet in subnets if not _leads_out(ec2, subnet)]
    if not isolated:
        yield passed(REACHABILITY, f"{', '.join(subnets)} have a route to AWS's services")
        return
    filters = [{"Name": "vpc-id", "Values": [network.get("vpcId", "")]}]
    endpoints = ec2.describe_vpc_endpoints(Filters=filters)["VpcEndpoints"]
    present = {str(e["ServiceName"]).rpartition(".")[2] for e in endpoints}
    missing = [service for service in SERVICES if service not in present]
    if missing:
        yield failed(
            REACHABILITY,
            f"{', '.join(isolated)} have no NAT gateway, and the VPC has no endpoint for {', '.join(missing)}",
            "create these endpoints, or route the subnets through a NAT gateway (docs/private-clusters.md)",
        )
    else:
        yield passed(
            REACHABILITY, "the VPC has every endpoint; node classes need spec.instanceProfile without one for IAM"
        )


def _from_outside(network: Mapping[str, Any]) -> Finding:
    action = f"deploy with -c subnets={','.join(network.get('subnetIds', ()))} -c securityGroups=…"
    if not network.get("endpointPublicAccess", True):
        return failed(
            REACHABILITY, "the cluster's endpoint is private, and functions outside the VPC can't reach it", action
        )
    cidrs = network.get("publicAccessCidrs") or [_EVERYWHERE]
    if _EVERYWHERE not in cidrs:
        return failed(REACHABILITY, f"the cluster's endpoint only accepts {', '.join(cidrs)}", action)
    return passed(REACHABILITY, "the cluster's endpoint is public")


def _leads_out(ec2: UntypedClient, subnet: str) -> bool:
    """Whether the subnet has a default route that an address without a public one can use."""
    filters = [{"Name": "association.subnet-id", "Values": [subnet]}]
    tables = ec2.describe_route_tables(Filters=filters)["RouteTables"]
    if not tables:
        (described,) = ec2.describe_subnets(SubnetIds=[subnet])["Subnets"]
        main = [{"Name": "vpc-id", "Values": [described["VpcId"]]}, {"Name": "association.main", "Values": ["true"]}]
        tables = ec2.describe_route_tables(Filters=main)["RouteTables"]
    return any(
        route.get("DestinationCidrBlock") == _EVERYWHERE and any(route.get(key) for key in _LEADS_OUT)
        for table in tables
        for route in table["Routes"]
    )
