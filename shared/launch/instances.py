"""Instances in EC2: listed by cluster or launch group, described by id, terminated."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.api import labels
from shared.base.aws import PAGES, error_code, filter_chunks
from shared.cloud_provider import Instance, Terminations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef

_NOT_TERMINATED = ("pending", "running", "stopping", "stopped", "shutting-down")
_ANY_STATE = (*_NOT_TERMINATED, "terminated")
PENDING_OR_RUNNING = frozenset({"pending", "running"})
_MAX_TERMINATED_A_CALL = 500
"""EC2 takes 1,000 instance ids in a call, and recommends fewer."""
_MAX_UNNAMED = 16
"""If EC2 refuses more without naming them, it is no matter of single instances: a right is missing, for example."""
_NOT_FOUND = frozenset({"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"})
_REFUSED = frozenset(
    {
        "IncorrectInstanceState",
        "IncorrectState",
        "OperationNotPermitted",
        "UnauthorizedOperation",
        "UnsupportedOperation",
    }
)
"""What is wrong with one instance: it is protected against termination, or a policy protects it."""
_INSTANCE_ID = re.compile(r"\bi-[0-9a-f]+\b")


def list_by_cluster(ec2: EC2Client, cluster_name: str) -> tuple[Instance, ...]:
    """Every instance that has the cluster's tag and isn't terminated, by id.

    Raises:
        ClientError: EC2 returned an error.
    """
    return _describe(ec2, [_cluster_filter(cluster_name)], _NOT_TERMINATED)


def list_by_launch_group(ec2: EC2Client, cluster_name: str, groups: Sequence[str]) -> tuple[Instance, ...]:
    """The instances of the launch groups, by id; terminated ones too, as long as EC2 shows them.

    Raises:
        ClientError: EC2 returned an error.
    """
    instances: list[Instance] = []
    of_cluster = _cluster_filter(cluster_name)
    for values in filter_chunks(groups, further_values=len(_ANY_STATE) + len(of_cluster["Values"])):
        group_filter: FilterTypeDef = {"Name": f"tag:{labels.LAUNCH_GROUP}", "Values": values}
        instances += _describe(ec2, [of_cluster, group_filter], _ANY_STATE)
    return tuple(sorted(instances, key=lambda i: i.id))


def get(ec2: EC2Client, instance_ids: Sequence[str]) -> tuple[Instance, ...]:
    """Those of the instances that EC2 knows, terminated ones too, by id. Unknown ids are no error.

    Raises:
        ClientError: EC2 returned an error.
    """
    instances: list[Instance] = []
    for values in filter_chunks(instance_ids, further_values=len(_ANY_STATE)):
        by_id: FilterTypeDef = {"Name": "instance-id", "Values": values}
        instances += _describe(ec2, [by_id], _ANY_STATE)
    return tuple(sorted(instances, key=lambda i: i.id))


def terminate(ec2: EC2Client, instance_ids: Sequence[str]) -> Terminations:
    """Terminate the instances, in batches.

    EC2 rejects a whole batch for one id that it doesn't know, or that it refuses to terminate. These are removed, and
    the rest is sent again.

    Raises:
        ClientError: EC2 returned an error that is about no single instance; terminating again is harmless.
    """
    known: list[str] = []
    refused: dict[str, str] = {}
    unique = list(dict.fromkeys(instance_ids))
    for start in range(0, len(unique), _MAX_TERMINATED_A_CALL):
        known += _terminate_batch(ec2, unique[start : start + _MAX_TERMINATED_A_CALL], refused)
    return Terminations(known=tuple(known), refused=refused)


def _terminate_batch(ec2: EC2Client, batch: list[str], refused: dict[str, str]) -> list[str]:
    """Terminate the instances; returns those that EC2 knew, without the ``refused`` ones, which are added there."""
    while batch:
        try:
            ec2.terminate_instances(InstanceIds=batch)
        except ClientError as error:
            code, message = error_code(error), error.response["Error"].get("Message", "")
            if code not in _NOT_FOUND | _REFUSED:
                raise
            named = set(_INSTANCE_ID.findall(message)) & set(batch)
            if not named and len(batch) > 1:
                middle = len(batch) // 2
                first = _terminate_batch(ec2, batch[:middle], refused)
                return [*first, *_terminate_batch(ec2, batch[middle:], refused)]
            unnamed = sum(instance_id not in why for instance_id, why in refused.items())
            if not named and code in _REFUSED and unnamed >= _MAX_UNNAMED:
                raise
            named = named or set(batch)
            if code in _REFUSED:
                refused.update(dict.fromkeys(named, f"{code}: {message}"))
            batch = [i for i in batch if i not in named]
        else:
            return batch
    return []


def _cluster_filter(cluster_name: str) -> FilterTypeDef:
    return {"Name": f"tag:{labels.CLUSTER_TAG.format(cluster=cluster_name)}", "Values": ["owned"]}


def _describe(ec2: EC2Client, filters: list[FilterTypeDef], states: Sequence[str]) -> tuple[Instance, ...]:
    by_state: FilterTypeDef = {"Name": "instance-state-name", "Values": list(states)}
    pages = ec2.get_paginator("describe_instances").paginate(Filters=[*filters, by_state], PaginationConfig=PAGES)
    instances = [_instance(i) for page in pages for r in page["Reservations"] for i in r.get("Instances", [])]
    return tuple(sorted(instances, key=lambda i: i.id))


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
        state_reason=described.get("StateReason", {}).get("Code", ""),
        state_message=described.get("StateReason", {}).get("Message", ""),
        capacity_reservation=described.get("CapacityReservationId", ""),
        security_groups=tuple(sorted(g.get("GroupId", "") for g in described.get("SecurityGroups", []))),
    )


def _capacity_type(described: InstanceTypeDef) -> str:
    if described.get("InstanceLifecycle") == "spot":
        return labels.SPOT
    return labels.RESERVED if described.get("CapacityReservationId") else labels.ON_DEMAND
