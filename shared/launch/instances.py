"""Instances in EC2: listed by cluster or launch group, described by id, terminated."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.api import labels
from shared.base.aws import PAGES, error_code, filter_chunks
from shared.cloud_provider import Instance, InstancesByZone, Terminations

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
_UNANSWERED = frozenset({"InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable"})
"""EC2's own errors, also while an Availability Zone is disrupted."""
_MAX_DESCRIBED_A_CALL = 1000
_INSTANCE_ID = re.compile(r"\bi-[0-9a-f]+\b")


def list_by_cluster(ec2: EC2Client, cluster_name: str, last_digits: Sequence[str] = ()) -> tuple[Instance, ...]:
    """Every instance that has the cluster's tag and isn't terminated, by id.

    ``last_digits``: only those whose ids end with one of them. Filters take wildcards (EC2's user guide, "List and
    filter using the CLI and API").

    Raises:
        ClientError: EC2 returned an error.
    """
    filters = [_cluster_filter(cluster_name)]
    if last_digits:
        filters.append({"Name": "instance-id", "Values": [f"i-*{digit}" for digit in last_digits]})
    return _describe(ec2, filters, _NOT_TERMINATED)


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
        try:
            instances += _describe(ec2, [by_id], _ANY_STATE)
        except ClientError as error:
            if not is_unanswered(error):
                raise
            instances += _describe_ids(ec2, values)
    return tuple(sorted(instances, key=lambda i: i.id))


def is_unanswered(error: ClientError) -> bool:
    """Whether EC2 failed by itself, as it does for any call that may be about a disrupted zone.

    "If you describe instances in the rare case where an Availability Zone is experiencing a service disruption and you
    specify instance IDs that are in the affected zone, or do not specify any instance IDs at all, the call fails" (API
    reference of DescribeInstances). A filter by id specifies none.
    """
    return error_code(error) in _UNANSWERED


def list_by_zone(ec2: EC2Client, ids_by_zone: Mapping[str, Sequence[str]]) -> InstancesByZone:
    """Those of the instances that EC2 knows, asked by id zone by zone, and the zones for which it didn't answer.

    Raises:
        ClientError: EC2 returned another error.
    """
    instances: list[Instance] = []
    unanswered: set[str] = set()
    for zone, ids in sorted(ids_by_zone.items()):
        try:
            for start in range(0, len(ids), _MAX_DESCRIBED_A_CALL):
                instances += _describe_known(ec2, ids[start : start + _MAX_DESCRIBED_A_CALL])
        except ClientError as error:
            if not is_unanswered(error):
                raise
            unanswered.add(zone)
    listed = [i for i in instances if i.state in _NOT_TERMINATED and i.zone not in unanswered]
    return InstancesByZone(tuple(sorted(listed, key=lambda i: i.id)), frozenset(unanswered))


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


def _describe_ids(ec2: EC2Client, batch: Sequence[str]) -> list[Instance]:
    """Those of the few instances that EC2 knows, without those about which it doesn't answer.

    Raises:
        ClientError: EC2 answers about none, or returned another error.
    """
    try:
        return _describe_known(ec2, batch)
    except ClientError as error:
        if len(batch) == 1 or not is_unanswered(error):
            raise
    middle = len(batch) // 2
    described: list[Instance] = []
    failures: list[ClientError] = []
    for half in (batch[:middle], batch[middle:]):
        try:
            described += _describe_ids(ec2, half)
        except ClientError as error:
            failures.append(error)
    if len(failures) > 1:
        raise failures[0]
    return described


def _describe_known(ec2: EC2Client, batch: Sequence[str]) -> list[Instance]:
    """The instances by id; those that EC2 names as unknown are removed."""
    while batch:
        try:
            # Also an answer by ids may come in pages, of which any may be empty.
            pages = list(ec2.get_paginator("describe_instances").paginate(InstanceIds=list(batch)))
        except ClientError as error:
            unknown = set(_INSTANCE_ID.findall(error.response["Error"].get("Message", ""))) & set(batch)
            if error_code(error) not in _NOT_FOUND or not unknown:
                raise
            batch = [i for i in batch if i not in unknown]
        else:
            return [_instance(i) for page in pages for r in page["Reservations"] for i in r.get("Instances", [])]
    return []


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
