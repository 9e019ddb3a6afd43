from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from functions.lifecycle.claims.nodeclaim_lifecycle import reconciled_node, reconciled_nodeclaim
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.kubernetes import Node, NodeSpec, NodeStatus, Taint
from shared.api.meta import Condition, ObjectMeta, condition, is_true
from shared.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClaimStatus, ResourceRequests
from shared.base.struct import with_fields

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
UNREGISTERED = Taint(key=names.UNREGISTERED_TAINT, effect="NoExecute")
STARTUP = Taint(key="example.com/agent", effect="NoSchedule")
OWN = Taint(key="example.com/team", effect="NoSchedule", value="a")
READY = Condition(type="Ready", status="True")


def claim(**requests: str) -> NodeClaim:
    return NodeClaim(
        metadata=ObjectMeta(
            name="default-abcde",
            uid="claim-uid",
            labels={names.NODEPOOL: "default", "team": "a"},
            annotations={"x": "y"},
        ),
        spec=NodeClaimSpec(
            taints=[OWN], startup_taints=[STARTUP], resources=ResourceRequests(requests={**(requests or {"cpu": "1"})})
        ),
        status=NodeClaimStatus(
            provider_id="aws:///us-east-1a/i-1",
            conditions=[Condition(type=nodeclaim.LAUNCHED, status="True", last_transition_time=NOW)],
        ),
    )


def joined(*, taints: list[Taint] | None = None, ready: bool = False, **allocatable: str) -> Node:
    return Node(
        metadata=ObjectMeta(name="ip-10-0-0-1", uid="node-uid"),
        spec=NodeSpec(provider_id="aws:///us-east-1a/i-1", taints=[UNREGISTERED] if taints is None else taints),
        status=NodeStatus(conditions=[READY] if ready else [], allocatable={**(allocatable or {"cpu": "2"})}),
    )


def test_a_registered_node_gets_its_nodeclaims_labels_taints_and_finalizer() -> None:
    node = reconciled_node(joined(), claim())
    assert node.metadata.labels == {names.NODEPOOL: "default", "team": "a", names.REGISTERED: "true"}
    assert node.metadata.annotations["x"] == "y"
    assert node.spec.taints == [OWN, STARTUP]
    assert node.metadata.finalizers == [names.TERMINATION_FINALIZER]
    assert node.metadata.owner_references == []


def test_the_annotation_with_planned_pods_is_not_copied_to_the_node() -> None:
    planned = claim()
    planned = with_fields(
        planned, metadata=with_fields(planned.metadata, annotations={"x": "y", names.PLANNED_PODS: "a/b,a/c"})
    )
    assert reconciled_node(joined(), planned).metadata.annotations == {
        "x": "y",
        names.NODECLAIM: planned.name,
    }


def test_registration_is_idempotent() -> None:
    once = reconciled_node(joined(ready=True), claim())
    assert reconciled_node(once, claim()) == once
    after = reconciled_nodeclaim(claim(), once, now=NOW)
    assert reconciled_nodeclaim(after, once, now=NOW + timedelta(minutes=1)) == after


def test_changes_after_registration_are_kept() -> None:
    node = reconciled_node(joined(), claim())
    edited = with_fields(
        node,
        metadata=with_fields(node.metadata, labels={**node.metadata.labels, "team": "b"}),
        spec=with_fields(node.spec, taints=[OWN]),
    )
    again = reconciled_node(edited, claim())
    assert again.metadata.labels["team"] == "b"
    assert again.spec.taints == [OWN]


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (joined(taints=[]), "NodeNotReady"),
        (joined(taints=[STARTUP], ready=True), "StartupTaintsExist"),
        (
            joined(taints=[Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")], ready=True),
            "KnownEphemeralTaintsExist",
        ),
        (joined(taints=[], ready=True, cpu="0"), "ResourceNotRegistered"),
    ],
)
def test_the_nodeclaim_says_why_its_node_is_not_initialized(node: Node, reason: str) -> None:
    after = reconciled_nodeclaim(claim(), node, now=NOW)
    assert is_true(after.status.conditions, nodeclaim.REGISTERED)
    waiting = condition(after.status.conditions, nodeclaim.INITIALIZED)
    assert waiting is not None
    assert (waiting.status, waiting.reason) == ("Unknown", reason)
    assert waiting.message
    assert not is_true(after.status.conditions, nodeclaim.READY)


def test_an_initialized_node_makes_the_nodeclaim_ready_and_sets_its_real_size() -> None:
    node = reconciled_node(joined(taints=[], ready=True, cpu="1930m", memory="3Gi"), claim())
    without_startup = with_fields(node, spec=with_fields(node.spec, taints=[OWN]))
    node = reconciled_node(without_startup, claim())
    assert node.metadata.labels[names.INITIALIZED] == "true"
    after = reconciled_nodeclaim(claim(), node, now=NOW)
    assert is_true(after.status.conditions, nodeclaim.READY)
    assert after.status.node_name == "ip-10-0-0-1"
    assert after.status.allocatable == {"cpu": "1930m", "memory": "3Gi"}


def test_a_nodeclaim_stays_initialized_when_its_node_becomes_unready() -> None:
    node = joined(taints=[], ready=True)
    after = reconciled_nodeclaim(claim(), node, now=NOW)
    later = reconciled_nodeclaim(after, joined(taints=[]), now=NOW + timedelta(hours=1))
    assert is_true(later.status.conditions, nodeclaim.INITIALIZED)
