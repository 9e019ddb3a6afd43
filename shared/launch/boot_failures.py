"""The circuit breaker of launches: machines that die at boot or never join, and launches that EC2 refuses.

EC2 answers CreateFleet before an instance boots, so a key that it may not use, or a broken snapshot, shows only as the
``StateReason`` of an instance that was terminated before its node registered. Launching again at once would launch,
and bill, an instance each few seconds. So a NodePool waits after such a failure, twice as long after each, up to
:data:`MAX_WAIT`; then one NodeClaim is launched, until one registers. So it does when a machine never joins, or a
launch is refused for good, and no other of the NodePool has joined since. Where several node classes fail and nothing
joins, all NodePools wait. Lack of capacity is no failure. The failures are in DynamoDB, as unavailable offerings are:
losing them costs a few launches.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import EventReason, condition, is_true
from shared.api.nodeclass import EC2NodeClass
from shared.base import dynamodb_rows
from shared.base.struct import Struct, with_fields
from shared.cloud_provider import instance_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mypy_boto3_dynamodb import DynamoDBClient

    from shared.api.nodeclaim import NodeClaim
    from shared.base.dynamodb_rows import Row
    from shared.cloud_provider import Instance, NodeClass, ResolvedNodePools
    from shared.snapshot import Snapshot

FIRST_WAIT = timedelta(minutes=1)
MAX_WAIT = timedelta(minutes=15)
MEMORY = timedelta(hours=1)
"""How long after its wait a failure is remembered: the next one within that time doubles the wait."""
BOOT_FAILED = EventReason("BootFailed")
REGISTRATION_TIMEOUT = EventReason("RegistrationTimeout")
LAUNCH_TIMEOUT = EventReason("LaunchTimeout")
"""The codes of machines that never joined, and of launches that were refused until their time-out."""

PARTITION = "boot-failure"
_CLUSTER_WIDE = 2
"""From this many failing node classes on, the cause isn't a node class."""
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

    ``code`` and ``message`` are EC2's StateReason, or say why the NodeClaim was given up. ``count`` is how many
    failures came one after the other.
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
    """Remember that the claim's instance failed at boot.

    Raises:
        ClientError: DynamoDB failed.
    """
    _remember(dynamodb, table, claim, instance.id, (instance.state_reason, instance.state_message), now=now)


def remember_timeout(
    dynamodb: DynamoDBClient,
    table: str,
    claim: NodeClaim,
    claims: Iterable[NodeClaim],
    why: tuple[str, str],
    *,
    now: datetime,
) -> None:
    """Remember ``why`` (reason, message) the claim is given up: its machine never joined or its launch was refused.

    Not if one of ``claims`` of its NodePool and node class has joined since it was created, nor if its launch wasn't
    refused: EC2 throttled it, or its NodePool waits. A machine whose NodeClaim can't be written
    hasn't joined either.

    Raises:
        ClientError: DynamoDB failed.
    """
    launched = condition(claim.status.conditions, nodeclaim.LAUNCHED)
    if why[0] == LAUNCH_TIMEOUT and (launched is None or launched.status == "Unknown"):
        return
    created = claim.metadata.creation_timestamp or now
    joined_at = _joined_at(claims).get(_key(claim))
    if joined_at is not None and joined_at >= created:
        return
    subject = instance_id(claim.status.provider_id) or claim.name
    _remember(dynamodb, table, claim, subject, why, now=now)


def row_key(pool: str, node_class: str) -> dict[str, dict[str, str]]:
    """The key of a failure's row: without the row, the circuit breaker is closed."""
    return {"pk": {"S": PARTITION}, "sk": {"S": f"{pool}/{node_class}"}}


def _remember(
    dynamodb: DynamoDBClient, table: str, claim: NodeClaim, subject: str, why: tuple[str, str], *, now: datetime
) -> None:
    """Remember a failure. Failures while the NodePool waits, of one launch's other instances, don't double the wait.

    Raises:
        ClientError: DynamoDB failed.
    """
    pool, node_class = _key(claim)
    before = current(dynamodb, table, now=now).get((pool, node_class))
    if before is not None and (now < before.retry_at or before.instance_id == subject):
        return
    count = before.count + 1 if before is not None else 1
    retry_at = now + min(FIRST_WAIT * 2 ** (count - 1), MAX_WAIT)
    dynamodb.put_item(
        TableName=table,
        Item={
            **row_key(pool, node_class),
            "instance": {"S": subject},
            "code": {"S": why[0]},
            "message": {"S": why[1]},
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
    return failures_of(dynamodb_rows.unexpired_rows(dynamodb, table, PARTITION, now=now, consistent=True))


def failures_of(rows: Iterable[Row]) -> dict[tuple[str, str], BootFailure]:
    """The failures of the rows, by NodePool and node class."""
    failures = {}
    for item in rows:
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
    joined_at = _joined_at(claims if failures else ())
    return {
        key: failure for key, failure in failures.items() if key not in joined_at or joined_at[key] <= failure.failed_at
    }


def cluster_wide(
    open_breakers: Mapping[tuple[str, str], BootFailure], claims: Iterable[NodeClaim]
) -> BootFailure | None:
    """The failure whose retry comes first, if several node classes fail and nothing has joined since the first did."""
    if len({node_class for _, node_class in open_breakers}) < _CLUSTER_WIDE:
        return None
    first = min(failure.failed_at for failure in open_breakers.values())
    if any(at > first for at in _joined_at(claims).values()):
        return None
    return min(open_breakers.values(), key=lambda failure: failure.retry_at)


def _joined_at(claims: Iterable[NodeClaim]) -> dict[tuple[str, str], datetime]:
    """When the last node registered, by NodePool and node class."""
    joined_at: dict[tuple[str, str], datetime] = {}
    for claim in claims:
        registered = condition(claim.status.conditions, nodeclaim.REGISTERED)
        if registered is None or registered.status != "True" or registered.last_transition_time is None:
            continue
        key = _key(claim)
        joined_at[key] = max(registered.last_transition_time, joined_at.get(key, registered.last_transition_time))
    return joined_at


def _key(claim: NodeClaim) -> tuple[str, str]:
    return claim.metadata.labels.get(names.NODEPOOL, ""), claim.spec.node_class_ref.name


def explain(failure: BootFailure, node_class: NodeClass | None) -> str:
    """One sentence for users; for a key that EC2 can't use, with the key and the missing grant."""
    if failure.code in {REGISTRATION_TIMEOUT, LAUNCH_TIMEOUT}:
        return failure.message
    text = f"instance {failure.instance_id} was terminated at boot ({failure.code})"
    mappings = node_class.spec.block_device_mappings if isinstance(node_class, EC2NodeClass) else ()
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
    reasons: dict[str, str] = {}
    on_trial = set()
    open_breakers = unresolved(failures, snapshot.node_claims)
    classes = {pool: node_class.name for pool, node_class in resolved.node_classes.items()}
    everywhere = cluster_wide(open_breakers, snapshot.node_claims)
    for pool, class_name in classes.items():
        failure = open_breakers.get((pool, class_name), everywhere)
        if failure is None:
            continue
        if now >= failure.retry_at:
            on_trial.add(pool)
        else:
            reasons[pool] = paused_message(failure, resolved.node_classes[pool], now=now)
    return with_fields(
        resolved,
        instance_types={**resolved.instance_types, **dict.fromkeys(reasons, ())},
        not_ready={**resolved.not_ready, **reasons},
        on_trial=frozenset(on_trial),
        trial_in_cluster=everywhere is not None,
    )


def paused_message(failure: BootFailure, node_class: NodeClass | None, *, now: datetime) -> str:
    """Why launches are paused, and when one is tried; one sentence for users."""
    own = node_class is not None and node_class.name == failure.node_class
    text = explain(failure, node_class if own else None)
    subject = "" if own else f"launches of several node classes fail, such as of NodePool {failure.node_pool}: "
    if now >= failure.retry_at:
        return f"{subject}{text}; one launch is tried until a node joins"
    return f"{subject}{text}; launches are tried again at {failure.retry_at:%H:%M:%S} UTC"
