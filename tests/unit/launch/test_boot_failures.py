"""Failures at boot: which instances failed, what users read, and how long NodePools wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import Condition, ObjectMeta
from shared.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClaimStatus
from shared.api.nodeclass import BlockDevice, BlockDeviceMapping, EC2NodeClass, EC2NodeClassSpec
from shared.api.nodepool import NodeClassRef
from shared.base.struct import with_fields
from shared.cloud_provider import Instance, ResolvedNodePools
from shared.launch import boot_failures
from shared.launch.boot_failures import BootFailure
from shared.snapshot import Snapshot

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
FAILURE = BootFailure(
    node_pool="default",
    node_class="default",
    instance_id="i-1",
    code="Client.InvalidKMSKey.InvalidState",
    message="Client.InvalidKMSKey.InvalidState: The KMS key provided is in an incorrect state",
    count=1,
    failed_at=NOW,
    retry_at=NOW + timedelta(minutes=1),
)
NODE_CLASS = EC2NodeClass(metadata=ObjectMeta(name="default"))


def claim(*, registered_at: datetime | None = None) -> NodeClaim:
    conditions = []
    if registered_at is not None:
        conditions.append(Condition(type=nodeclaim.REGISTERED, status="True", last_transition_time=registered_at))
    return NodeClaim(
        metadata=ObjectMeta(name="c", labels={names.NODEPOOL: "default"}),
        spec=NodeClaimSpec(node_class_ref=NodeClassRef(name="default")),
        status=NodeClaimStatus(conditions=conditions),
    )


def instance(code: str, *, state: str = "terminated") -> Instance:
    return Instance(
        id="i-1",
        type="m5.large",
        zone="us-east-1a",
        state=state,
        launched_at=NOW,
        tags={},
        image_id="ami-1",
        capacity_type=names.SPOT,
        state_reason=code,
    )


def held(at: datetime, *claims: NodeClaim) -> ResolvedNodePools:
    resolved = ResolvedNodePools(instance_types={"default": ()}, not_ready={}, node_classes={"default": NODE_CLASS})
    snapshot = Snapshot(taken_at=at, node_claims=claims)
    return boot_failures.hold(resolved, {("default", "default"): FAILURE}, snapshot, now=at)


def test_only_a_machine_that_failed_by_itself_before_it_registered_failed_at_boot() -> None:
    assert boot_failures.has_failed_at_boot(claim(), instance("Client.InternalError"))
    assert not boot_failures.has_failed_at_boot(claim(registered_at=NOW), instance("Client.InternalError"))
    assert not boot_failures.has_failed_at_boot(claim(), instance("Client.InternalError", state="running"))
    assert not boot_failures.has_failed_at_boot(claim(), instance("Client.UserInitiatedShutdown"))
    assert not boot_failures.has_failed_at_boot(claim(), instance("Server.SpotInstanceTermination"))
    assert not boot_failures.has_failed_at_boot(claim(), instance("Server.InsufficientInstanceCapacity"))
    assert boot_failures.lacked_capacity(instance("Server.InsufficientInstanceCapacity"))


def test_a_nodepool_launches_nothing_until_the_wait_ends_and_then_is_on_trial_until_a_node_registers() -> None:
    waiting = held(NOW + timedelta(seconds=59))
    assert "i-1 was terminated at boot" in waiting.not_ready["default"]
    assert "12:01:00 UTC" in waiting.not_ready["default"]
    trial = held(NOW + timedelta(seconds=60))
    assert not trial.not_ready
    assert trial.on_trial == frozenset({"default"})
    resolved = held(NOW + timedelta(seconds=60), claim(registered_at=NOW + timedelta(seconds=30)))
    assert not resolved.not_ready
    assert not resolved.on_trial


def test_the_message_about_a_key_names_the_key_and_the_grants() -> None:
    mapping = BlockDeviceMapping(device_name="/dev/xvda", ebs=BlockDevice(kms_key_id="arn:aws:kms:r:1:key/k"))
    with_key = with_fields(NODE_CLASS, spec=EC2NodeClassSpec(block_device_mappings=[mapping]))
    text = boot_failures.explain(FAILURE, with_key)
    assert "KMS key arn:aws:kms:r:1:key/k of node class default" in text
    assert "kms:CreateGrant" in text
    assert "the account's default" in boot_failures.explain(FAILURE, NODE_CLASS)
    with_message = with_fields(
        FAILURE, code="Client.InternalError", message="Client.InternalError: Client error on launch"
    )
    assert boot_failures.explain(with_message, NODE_CLASS).endswith("(Client.InternalError): Client error on launch")
