from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from functions.lifecycle.claims.liveness import is_launch_overdue, liveness_failure
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.kubernetes import Node, NodeSpec
from shared.api.meta import Condition, ObjectMeta
from shared.api.nodeclaim import NodeClaim, NodeClaimStatus
from shared.api.nodepool import NodePool
from shared.base.struct import with_fields
from shared.cloud_provider import Instance, instance_id
from shared.termination.garbage import (
    GRACE_PERIOD,
    deleted_nodes_with_live_nodeclaim,
    instances_without_nodeclaim,
    nodeclaims_without_instance,
    nodes_older_than_node_pool,
    nodes_without_nodeclaim_and_instance,
)

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
OLD = NOW - timedelta(minutes=20)


def machine(
    identity: str, *, state: str = "running", at: datetime = OLD, group: str = "", tags: dict[str, str] | None = None
) -> Instance:
    return Instance(
        id=identity,
        type="m5.large",
        zone="us-east-1a",
        state=state,
        launched_at=at,
        tags={names.NODEPOOL: "default", **({names.LAUNCH_GROUP: group} if group else {}), **(tags or {})},
        image_id="ami-1",
        capacity_type=names.SPOT,
    )


def claim(
    *, provider_id: str = "", group: str = "", launched: bool = True, created: datetime = OLD, registered: bool = False
) -> NodeClaim:
    conditions = []
    if launched:
        conditions.append(Condition(type=nodeclaim.LAUNCHED, status="True", last_transition_time=created))
    if registered:
        conditions.append(Condition(type=nodeclaim.REGISTERED, status="True", last_transition_time=created))
    return NodeClaim(
        metadata=ObjectMeta(name="c", creation_timestamp=created, annotations={names.LAUNCH_GROUP: group}),
        status=NodeClaimStatus(provider_id=provider_id, conditions=conditions),
    )


def test_an_instance_without_nodeclaim_is_terminated() -> None:
    held = claim(provider_id="aws:///us-east-1a/i-1")
    assert instances_without_nodeclaim([machine("i-1"), machine("i-2")], [held], now=NOW) == ("i-2",)


def test_a_new_instance_and_one_that_is_shutting_down_are_left_alone() -> None:
    young = machine("i-1", at=NOW - GRACE_PERIOD + timedelta(seconds=1))
    assert instances_without_nodeclaim([young, machine("i-2", state="shutting-down")], [], now=NOW) == ()


def test_an_instance_whose_launch_group_waits_for_instances_is_left_to_the_provisioner() -> None:
    waiting = claim(group="g", launched=False)
    assert instances_without_nodeclaim([machine("i-1", group="g")], [waiting], now=NOW) == ()
    assert instances_without_nodeclaim([machine("i-1", group="other")], [waiting], now=NOW) == ("i-1",)


def test_a_nodeclaim_whose_instance_is_gone_is_deleted() -> None:
    gone = claim(provider_id="aws:///us-east-1a/i-1")
    assert nodeclaims_without_instance([gone], [machine("i-1", state="terminated")], now=NOW) == (gone,)
    assert nodeclaims_without_instance([gone], [], now=NOW) == (gone,)
    assert nodeclaims_without_instance([gone], [machine("i-1")], now=NOW) == ()


def test_a_nodeclaim_just_launched_is_kept_until_ec2_shows_its_instance() -> None:
    fresh = claim(provider_id="aws:///us-east-1a/i-1", created=NOW - timedelta(seconds=5))
    assert nodeclaims_without_instance([fresh], [], now=NOW) == ()


def test_a_managed_node_without_nodeclaim_and_instance_is_deleted_and_an_unmanaged_one_is_kept() -> None:
    ours = Node(
        metadata=ObjectMeta(name="a", finalizers=[names.TERMINATION_FINALIZER]),
        spec=NodeSpec(provider_id="aws:///us-east-1a/i-1"),
    )
    strange = Node(metadata=ObjectMeta(name="b"), spec=NodeSpec(provider_id="aws:///us-east-1a/i-2"))
    assert nodes_without_nodeclaim_and_instance([ours, strange], [], [], now=NOW) == (ours,)
    assert nodes_without_nodeclaim_and_instance([ours], [], [machine("i-1")], now=NOW) == ()
    assert nodes_without_nodeclaim_and_instance([ours], [claim(provider_id="aws:///us-east-1a/i-1")], [], now=NOW) == ()


def test_a_deleted_node_is_terminated_until_its_nodeclaim_is_deleted_too() -> None:
    provider_id = "aws:///us-east-1a/i-1"

    def node(*, gone: bool, ours: bool = True) -> Node:
        labels = {names.NODEPOOL: "default"} if ours else {}
        metadata = ObjectMeta(name="n", labels=labels, deletion_timestamp=NOW if gone else None)
        return Node(metadata=metadata, spec=NodeSpec(provider_id=provider_id))

    living = claim(provider_id=provider_id)
    leaving = with_fields(living, metadata=with_fields(living.metadata, deletion_timestamp=NOW))
    assert deleted_nodes_with_live_nodeclaim([node(gone=True)], [living]) == (node(gone=True),)
    assert deleted_nodes_with_live_nodeclaim([node(gone=False), node(gone=True, ours=False)], [living]) == ()
    assert deleted_nodes_with_live_nodeclaim([node(gone=True)], [leaving]) == ()


def test_an_invalid_provider_id_has_no_instance_id() -> None:
    assert instance_id("aws:///us-east-1a/i-0abc") == "i-0abc"
    assert instance_id("") == ""
    assert instance_id("gce://project/zone/vm") == ""
    assert instance_id("aws:///us-east-1a/banana") == ""


def test_a_nodeclaim_fails_liveness_when_it_is_not_launched_within_five_minutes() -> None:
    assert liveness_failure(claim(launched=False, created=NOW - timedelta(minutes=4)), now=NOW) is None
    reason = liveness_failure(claim(launched=False, created=NOW - timedelta(minutes=5)), now=NOW)
    assert reason is not None
    assert reason.reason == "LaunchTimeout"


@pytest.mark.parametrize("minutes", [-5, 5])
def test_a_launch_is_timed_by_the_clock_of_the_api_server(minutes: int) -> None:
    server_now = NOW + timedelta(minutes=minutes)
    new = claim(launched=False, created=server_now)
    late = claim(launched=False, created=server_now - timedelta(minutes=5))
    assert liveness_failure(new, now=NOW, server_now=server_now) is None
    assert liveness_failure(late, now=NOW, server_now=server_now) is not None
    assert not is_launch_overdue(new, server_now=server_now)
    assert is_launch_overdue(late, server_now=server_now)


def test_a_nodeclaim_fails_liveness_when_it_is_not_registered_within_fifteen_minutes() -> None:
    quarter = claim(provider_id="aws:///us-east-1a/i-1", created=NOW - timedelta(minutes=15))
    reason = liveness_failure(quarter, now=NOW)
    assert reason is not None
    assert reason.reason == "RegistrationTimeout"
    assert "i-1" in reason.message
    assert liveness_failure(claim(provider_id="aws:///us-east-1a/i-1", registered=True), now=NOW) is None


def test_only_nodes_that_are_older_than_their_node_pool_have_lost_their_nodeclaims() -> None:
    def node(name: str, *, pool: str = "default", created: datetime = OLD, deleted: datetime | None = None) -> Node:
        labels = {names.NODEPOOL: pool}
        return Node(
            metadata=ObjectMeta(name=name, labels=labels, creation_timestamp=created, deletion_timestamp=deleted)
        )

    pools = {"default": NodePool(metadata=ObjectMeta(name="default", creation_timestamp=NOW))}
    nodes = [
        node("older"),
        node("younger", created=NOW + timedelta(minutes=1)),
        node("of another pool", pool="other"),
        node("deleted", deleted=NOW),
    ]
    assert [n.metadata.name for n in nodes_older_than_node_pool(nodes, pools)] == ["older"]
