"""Machines that die at boot: why, and how long their NodePool launches nothing with that node class.

EC2 answers CreateFleet before an instance boots, so a key that it may not use, or a broken snapshot, shows only as the
``StateReason`` of an instance that was terminated before its node registered. Launching again at once would launch,
and bill, an instance each few seconds. So a NodePool waits after such a failure, twice as long after each, up to
:data:`MAX_WAIT`; then one NodeClaim is launched, until one registers. The failures are in DynamoDB, as unavailable
offerings are: losing them costs a few launches.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shared import dynamodb_rows
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import EventReason, condition, is_true
from shared.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mypy_boto3_dynamodb import DynamoDBClient

    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass
    from shared.cloud_provider import Instance, ResolvedNodePools
    from shared.snapshot import Snapshot

FIRST_WAIT = timedelta(minutes=1)
MAX_WAIT = timedelta(minutes=15)
MEMORY = timedelta(hours=1)
"""How long after its wait a failure is remembered: the next one within that time doubles the wait."""
BOOT_FAILED = EventReason("BootFailed")

_PARTITION = "boot-failure"
_CAPACITY = "Server.InsufficientInstanceCapacity"
_TERMINATED_BY_OTHERS = frozenset(
    {
        "",
        "Client.UserInitiatedShutdown",
        "Client.UserInitiatedHibernate",
        "Server.ScheduledStop",
        "Server.SpotInstanceShutdown",
        "Server.SpotInstanceTermination",
    }
)
"""State reasons that don't say that a machine failed (EC2 API Reference, StateReason)."""
_KMS_PREFIX = "Client.InvalidKMSKey"
_KMS_GRANTS = "kms:CreateGrant, kms:Decrypt, kms:DescribeKey, kms:GenerateDataKeyWithoutPlaintext and kms:ReEncrypt*"


class BootFailure(Struct, kw_only=True):
    """The last failures of one NodePool with one node class.

    ``code`` and ``message`` are EC2's StateReason, ``count`` is how many failures came one after the other.
    """

    node_pool: str
    node_class: str
    instance_id: str
    code: str
    message: str
    count: int
    failed_at: datetime
    retry_at: datetime


def has_failed_at_boot(claim: NodeClaim, instance: Instance) -> bool:
    """Whether the instance was terminated before its node registered, by a failure of its own."""
    return (
        instance.state in {"shutting-down", "terminated"}
        and not is_true(claim.status.conditions, nodeclaim.REGISTERED)
        and instance.state_reason not in {*_TERMINATED_BY_OTHERS, _CAPACITY}
    )


def lacked_capacity(instance: Instance) -> bool:
    """Whether EC2 terminated the instance for lack of capacity."""
    return instance.state_reason == _CAPACITY


def remember(dynamodb: DynamoDBClient, table: str, claim: NodeClaim, instance: Instance, *, now: datetime) -> None:
    """Remember a failure. Failures while the NodePool waits, of one launch's other instances, don't double the wait.

    Raises:
        ClientError: DynamoDB failed.
    """
    pool, node_class = claim.metadata.labels.get(names.NODEPOOL, ""), claim.spec.node_class_ref.name
    before = current(dynamodb, table, now=now).get((pool, node_class))
    if before is not None and (now < before.retry_at or before.instance_id == instance.id):
        return
    count = before.count + 1 if before is not None else 1
    retry_at = now + min(FIRST_WAIT * 2 ** (count - 1), MAX_WAIT)
    dynamodb.put_item(
        TableName=table,
        Item={
            "pk": {"S": _PARTITION},
            "sk": {"S": f"{pool}/{node_class}"},
            "instance": {"S": instance.id},
            "code": {"S": instance.state_reason},
            "message": {"S": instance.state_message},
            "count": {"N": str(count)},
            "failed": {"N": str(int(now.timestamp()))},
            "retry": {"N": str(int(retry_at.timestamp()))},
            "expires": {"N": str(int((retry_at + MEMORY).timestamp()))},
        },
    )


def current(dynamodb: DynamoDBClient, table: str, *, now: datetime) -> dict[tuple[str, str], BootFailure]:
    """The failures that are remembered, by NodePool and node class.

    Raises:
        ClientError: DynamoDB failed.
    """
    failures = {}
    for item in dynamodb_rows.unexpired_items(dynamodb, table, _PARTITION, now=now, consistent=True):
        pool, _, node_class = item["sk"]["S"].partition("/")
        failures[pool, node_class] = BootFailure(
            node_pool=pool,
            node_class=node_class,
            instance_id=item["instance"]["S"],
            code=item["code"]["S"],
            message=item["message"]["S"],
            count=int(item["count"]["N"]),
            failed_at=datetime.fromtimestamp(int(item["failed"]["N"]), UTC),
            retry_at=datetime.fromtimestamp(int(item["retry"]["N"]), UTC),
        )
    return failures


def unresolved(
    failures: Mapping[tuple[str, str], BootFailure], claims: Iterable[NodeClaim]
) -> dict[tuple[str, str], BootFailure]:
    """The failures after which no NodeClaim of the same NodePool and node class has registered."""
    registered_at: dict[tuple[str, str], datetime] = {}
    for claim in claims if failures else ():
        registered = condition(claim.status.conditions, nodeclaim.REGISTERED)
        if registered is None or registered.status != "True" or registered.last_transition_time is None:
            continue
        key = claim.metadata.labels.get(names.NODEPOOL, ""), claim.spec.node_class_ref.name
        registered_at[key] = max(
            registered.last_transition_time, registered_at.get(key, registered.last_transition_time)
        )
    return {
        key: failure
        for key, failure in failures.items()
        if key not in registered_at or registered_at[key] <= failure.failed_at
    }


def explain(failure: BootFailure, node_class: EC2NodeClass | None) -> str:
    """One sentence for users; for a key that EC2 can't use, with the key and the missing grant."""
    text = f"instance {failure.instance_id} was terminated at boot ({failure.code})"
    mappings = node_class.spec.block_device_mappings if node_class is not None else ()
    keys = sorted({m.ebs.kms_key_id for m in mappings if m.ebs is not None and m.ebs.kms_key_id})
    if failure.code.startswith(_KMS_PREFIX) or (keys and failure.code == "Client.InternalError"):
        key = f"KMS key {', '.join(keys)}" if keys else "the KMS key that is the account's default for EBS"
        return (
            f"{text}: EC2 can't use {key} of node class {failure.node_class}: enable it, and grant {_KMS_GRANTS} on it "
            "to Tenon's functions (deploy with -c kmsKeys=KEY_ARN) and, for spot, to AWSServiceRoleForEC2Spot"
        )
    details = failure.message.removeprefix(f"{failure.code}: ")
    return f"{text}: {details}" if details else text


def hold(
    resolved: ResolvedNodePools,
    failures: Mapping[tuple[str, str], BootFailure],
    snapshot: Snapshot,
    *,
    now: datetime,
) -> ResolvedNodePools:
    """The pools without instance types where a failed boot is waited for; those on trial are in ``on_trial``."""
    instance_types, not_ready = dict(resolved.instance_types), dict(resolved.not_ready)
    on_trial = set()
    for (pool, class_name), failure in unresolved(failures, snapshot.node_claims).items():
        node_class = resolved.node_classes.get(pool)
        if node_class is None or node_class.name != class_name:
            continue
        if now >= failure.retry_at:
            on_trial.add(pool)
            continue
        instance_types[pool] = ()
        not_ready[pool] = f"{explain(failure, node_class)}; launches are tried again at {failure.retry_at:%H:%M:%S} UTC"
    return replace(resolved, instance_types=instance_types, not_ready=not_ready, on_trial=frozenset(on_trial))
