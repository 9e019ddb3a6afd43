"""Instances in EC2: listed by cluster or launch group, described by id, terminated."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared import aws
from shared.api import labels
from shared.aws import error_code
from shared.cloud_provider import Instance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef

_NOT_TERMINATED = ("pending", "running", "stopping", "stopped", "shutting-down")
_PENDING_OR_RUNNING = ("pending", "running")
_VALUES_A_FILTER = 200
_A_CALL = 500
"""Instance ids in one call; EC2 takes 1,000 and advises fewer."""
_NOT_FOUND = frozenset({"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"})
_ID = re.compile(r"\bi-[0-9a-f]+\b")


def list_by_cluster(cluster_name: str) -> tuple[Instance, ...]:
    """Every instance that has the cluster's tag and isn't terminated, by id.

    Raises:
        ClientError: EC2 refused.
    """
    return _describe(
        [{"Name": f"tag:{labels.CLUSTER_TAG.format(cluster=cluster_name)}", "Values": ["owned"]}], _NOT_TERMINATED
    )


def list_by_launch_group(cluster_name: str, groups: Sequence[str]) -> tuple[Instance, ...]:
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
            _PENDING_OR_RUNNING,
        )
    return tuple(sorted(found, key=lambda i: i.id))


def get(instance_ids: Sequence[str], *, ec2: EC2Client | None = None) -> tuple[Instance, ...]:
    """Those of the instances that EC2 still knows, terminated ones too, by id. Unknown ids are no error.

    ``ec2``: the client to ask by, if not the usual one.

    Raises:
        ClientError: EC2 refused.
    """
    found: list[Instance] = []
    for start in range(0, len(instance_ids), _VALUES_A_FILTER):
        some = list(instance_ids[start : start + _VALUES_A_FILTER])
        found += _describe([{"Name": "instance-id", "Values": some}], (*_NOT_TERMINATED, "terminated"), ec2=ec2)
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


def terminate(instance_ids: Sequence[str]) -> tuple[str, ...]:
    """Terminate the instances, in batches; returns those that EC2 knew. One that is gone already is no error.

    EC2 refuses a whole batch for one unknown id, so that id is taken out and the rest is asked for again.

    Raises:
        ClientError: EC2 refused for another reason; terminating again is harmless.
    """
    known: list[str] = []
    wanted = list(dict.fromkeys(instance_ids))
    for start in range(0, len(wanted), _A_CALL):
        known += _terminate(wanted[start : start + _A_CALL])
    return tuple(known)


def _terminate(batch: list[str]) -> list[str]:
    while batch:
        try:
            aws.ec2().terminate_instances(InstanceIds=batch)
        except ClientError as error:
            if error_code(error) not in _NOT_FOUND:
                raise
            unknown = set(_ID.findall(error.response["Error"].get("Message", ""))) & set(batch)
            if not unknown:
                return [i for one in batch for i in _terminate([one])] if len(batch) > 1 else []
            batch = [i for i in batch if i not in unknown]
        else:
            return batch
    return []
