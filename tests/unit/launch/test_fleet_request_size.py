"""A CreateFleet request is never larger than EC2 takes: many zones and tags cost the most expensive overrides."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from botocore.serialize import create_serializer
from botocore.session import get_session

from shared.api import labels
from shared.api.meta import ObjectMeta
from shared.api.nodeclaim import NodeClaim
from shared.api.nodeclass import EC2NodeClass, EC2NodeClassSpec, ResolvedAMI
from shared.cluster.connect import ClusterInfo
from shared.instance_types.instance_type import InstanceType, Offering
from shared.launch.fleet.overrides import FleetPlan, Override
from shared.launch.fleet.request import FleetRequest, TemplateKey
from shared.launch.launch_template import LaunchTemplate
from shared.launch.node_class.subnets import Subnet
from shared.scheduling.decision import MAX_INSTANCE_TYPES

LIMIT = 131_072
KEY = TemplateKey("ami-1", "", 0, "")
CLUSTER = ClusterInfo(
    name="c" * 100,
    endpoint="https://api",
    certificate_authority="",
    version="1.36",
    service_cidr="172.20.0.0/16",
    region="us-east-1",
)


def plan(zones: str) -> FleetPlan:
    """Every instance type in every zone, with a price by a NodeOverlay, so that EC2 gets priorities."""
    return FleetPlan(
        capacity_type=labels.SPOT,
        overrides=tuple(
            Override(
                instance_type=InstanceType(
                    name=f"x2iedn{number}.metal-32xlarge", labels={}, capacity={}, overhead={}, offerings=()
                ),
                offering=Offering(
                    zone=f"us-east-1{zone}",
                    capacity_type=labels.SPOT,
                    price=float(number),
                    list_price=number + 1.0,
                ),
                subnet=Subnet(f"subnet-{ord(zone):017x}", f"us-east-1{zone}", "", 100),
                ami=ResolvedAMI(id="ami-1"),
            )
            for number in range(MAX_INSTANCE_TYPES)
            for zone in zones
        ),
    )


def request(tags: dict[str, str]) -> FleetRequest:
    node_class = EC2NodeClass(metadata=ObjectMeta(name="n" * 60), spec=EC2NodeClassSpec(tags=tags))
    return FleetRequest(group="g", cluster=CLUSTER, node_class=node_class, claims=[NodeClaim()])


def size(fleet: FleetRequest, planned: FleetPlan) -> int:
    """The bytes of the request as botocore sends it."""
    template = LaunchTemplate(name="x" * 128, data={})
    parameters: dict[str, Any] = fleet.parameters(planned, fleet.claims, {KEY: template}, step="s")
    operation = get_session().get_service_model("ec2").operation_model("CreateFleet")
    return len(urlencode(create_serializer("ec2").serialize_to_request(parameters, operation)["body"]))


def test_the_overrides_of_sixty_types_in_six_zones_all_fit() -> None:
    fleet, planned = request({"team": "web"}), plan("abcdef")
    assert fleet.within_limit(planned) == planned
    assert size(fleet, planned) < LIMIT


def test_with_the_longest_tags_the_most_expensive_overrides_are_left_out() -> None:
    fleet, planned = request({f"{'k' * 120}{n:02}": "v" * 256 for n in range(40)}), plan("abcdef")
    assert size(fleet, planned) > LIMIT
    limited = fleet.within_limit(planned)
    assert size(fleet, limited) < LIMIT
    assert limited.overrides == planned.overrides[: len(limited.overrides)]
    assert len(limited.overrides) > 100
