"""The cluster's instances as EC2 knows them, found by their tags. Reading only: whoever terminates imports more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared import aws
from shared.api import labels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef

ALIVE = ("pending", "running", "stopping", "stopped", "shutting-down")
LAUNCHED = ("pending", "running")
_VALUES_A_FILTER = 200


@dataclass(frozen=True, kw_only=True)
class Instance:
    """An instance; ``state`` is EC2's: pending, running, stopping, stopped, shutting-down, terminated."""

    id: str
    type: str
    zone: str
    state: str
    launched_at: datetime
    tags: Mapping[str, str]
    image_id: str
    capacity_type: str
    private_dns_name: str = ""
    subnet_id: str = ""
    security_groups: tuple[str, ...] = ()

    @property
    def provider_id(self) -> str:
        """As the node's spec has it."""
        return provider_id(self.zone, self.id)


def provider_id(zone: str, instance_id: str) -> str:
    """``aws:///<zone>/<instance id>``, the cloud provider's form."""
    return f"aws:///{zone}/{instance_id}"


def instance_id(provider_id: str) -> str:
    """The instance id of a provider id, or "" if it is none of EC2's."""
    found = provider_id.rpartition("/")[2]
    return found if provider_id.startswith("aws:///") and found.startswith("i-") else ""


def describe_cluster_instances(cluster_name: str, *, states: Sequence[str] = ALIVE) -> tuple[Instance, ...]:
    """Every instance that carries the cluster's tag and is in one of the states, by id.

    Raises:
        ClientError: EC2 refused.
    """
    return _describe([{"Name": f"tag:{labels.CLUSTER_TAG.format(cluster=cluster_name)}", "Values": ["owned"]}], states)


def of_launch_groups(cluster_name: str, groups: Sequence[str]) -> tuple[Instance, ...]:
    """The instances that were launched for those groups and are starting or running, by id.

    Raises:
        ClientError: EC2 refused.
    """
    found: list[Instance] = []
    for start in range(0, len(groups), _VALUES_A_FILTER):
        found += _describe(
            [
                {"Name": f"tag:{labels.CLUSTER_TAG.format(cluster=cluster_name)}", "Values": ["owned"]},
                {"Name": f"tag:{labels.LAUNCH_GROUP}", "Values": list(groups[start : start + _VALUES_A_FILTER])},
            ],
            LAUNCHED,
        )
    return tuple(sorted(found, key=lambda i: i.id))


def describe(instance_ids: Sequence[str], *, ec2: EC2Client | None = None) -> tuple[Instance, ...]:
    """Those of the instances that EC2 still knows, terminated ones too, by id. Unknown ids are no error.

    ``ec2``: the client to ask by, if not the usual one.

    Raises:
        ClientError: EC2 refused.
    """
    found: list[Instance] = []
    for start in range(0, len(instance_ids), _VALUES_A_FILTER):
        some = list(instance_ids[start : start + _VALUES_A_FILTER])
        found += _describe([{"Name": "instance-id", "Values": some}], (*ALIVE, "terminated"), ec2=ec2)
    return tuple(sorted(found, key=lambda i: i.id))


def _describe(
    filters: list[FilterTypeDef], states: Sequence[str], *, ec2: EC2Client | None = None
) -> tuple[Instance, ...]:
    pages = (
        (ec2 or aws.ec2())
        .get_paginator("describe_instances")
        .paginate(Filters=[*filters, {"Name": "instance-state-name", "Values": list(states)}])
    )
    found = [_instance(i) for page in pages for r in page["Reservations"] for i in r.get("Instances", [])]
    return tuple(sorted(found, key=lambda i: i.id))


def _instance(described: InstanceTypeDef) -> Instance:
    return Instance(
        id=described["InstanceId"],
        type=str(described["InstanceType"]),
        zone=described["Placement"].get("AvailabilityZone", ""),
        state=described["State"]["Name"],
        launched_at=described["LaunchTime"],
        tags={t["Key"]: t["Value"] for t in described.get("Tags", [])},
        image_id=described.get("ImageId", ""),
        capacity_type=_capacity_type(described),
        private_dns_name=described.get("PrivateDnsName", ""),
        subnet_id=described.get("SubnetId", ""),
        security_groups=tuple(sorted(g.get("GroupId", "") for g in described.get("SecurityGroups", []))),
    )


def _capacity_type(described: InstanceTypeDef) -> str:
    if described.get("InstanceLifecycle") == "spot":
        return labels.SPOT
    return labels.RESERVED if described.get("CapacityReservationId") else labels.ON_DEMAND
