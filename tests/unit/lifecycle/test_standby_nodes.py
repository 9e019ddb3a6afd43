"""How a standby node joins, when it is warm, and what it is like when it is stopped and opened again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from functions.lifecycle.claims.standby_nodes import (
    WARM_AFTER,
    WARM_TIMEOUT,
    is_warm,
    opened_standby,
    registered_standby,
    stopped_standby,
)
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.kubernetes import Node, NodeSpec, NodeStatus, Pod, PodSpec, PodStatus, Taint
from shared.api.meta import Condition, ObjectMeta
from shared.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClaimStatus
from shared.api.standby import WARMING
from shared.api.taints import PODS_NOT_NOMINATED

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
AGENT = Taint(key="node.cilium.io/agent-not-ready", effect="NoSchedule")
EVICTING = Taint(key="example.com/starting", effect="NoExecute")
OWN = Taint(key="example.com/team", value="a", effect="NoSchedule")


def claim(*, registered: timedelta = timedelta(minutes=2)) -> NodeClaim:
    condition = Condition(type=nodeclaim.REGISTERED, status="True", last_transition_time=NOW - registered)
    return NodeClaim(
        metadata=ObjectMeta(name="c", annotations={names.STANDBY: WARMING}),
        spec=NodeClaimSpec(taints=[OWN], startup_taints=[AGENT, EVICTING, PODS_NOT_NOMINATED]),
        status=NodeClaimStatus(conditions=[condition]),
    )


def node(*, ready: timedelta = timedelta(minutes=2), status: str = "True", cordoned: bool = True) -> Node:
    condition = Condition(type="Ready", status=status, last_transition_time=NOW - ready)
    return Node(
        metadata=ObjectMeta(name="n"),
        spec=NodeSpec(unschedulable=cordoned, taints=[Taint(key=names.UNREGISTERED_TAINT, effect="NoExecute")]),
        status=NodeStatus(conditions=[condition]),
    )


def pod(*, ready: bool) -> Pod:
    condition = Condition(type="Ready", status=str(ready))
    return Pod(metadata=ObjectMeta(name="p", namespace="d"), spec=PodSpec(), status=PodStatus(conditions=[condition]))


def test_it_joins_cordoned_in_one_write_and_open_for_daemon_sets() -> None:
    joined = registered_standby(node(cordoned=False), claim())
    assert joined.spec.unschedulable
    assert joined.metadata.labels[names.STANDBY] == "true"
    assert names.STANDBY not in joined.metadata.annotations
    assert set(joined.spec.taints) == {OWN, AGENT, EVICTING}
    assert registered_standby(joined, claim()) == joined


def test_it_is_stopped_with_its_startup_taints_and_opened_without_the_cordon() -> None:
    joined = registered_standby(node(cordoned=False), claim())
    ran = Node(metadata=joined.metadata, spec=NodeSpec(unschedulable=True, taints=[OWN]), status=joined.status)
    stopped = stopped_standby(ran, claim())
    assert set(stopped.spec.taints) == {OWN, AGENT, PODS_NOT_NOMINATED}
    assert stopped_standby(stopped, claim()) == stopped
    opened = opened_standby(stopped)
    assert not opened.spec.unschedulable
    assert names.STANDBY not in opened.metadata.labels
    assert opened.spec.taints == stopped.spec.taints


def test_it_is_warm_when_its_pods_are_ready_or_the_time_is_over() -> None:
    assert is_warm(claim(), node(), [pod(ready=True)], now=NOW)
    assert not is_warm(claim(), node(), [pod(ready=True), pod(ready=False)], now=NOW)
    assert not is_warm(claim(), node(ready=WARM_AFTER / 2), [], now=NOW)
    assert not is_warm(claim(), node(status="False"), [], now=NOW)
    assert not is_warm(claim(), node(cordoned=False), [], now=NOW)
    assert is_warm(claim(registered=WARM_TIMEOUT), node(status="False"), [pod(ready=False)], now=NOW)
    assert not is_warm(NodeClaim(metadata=ObjectMeta(name="c")), node(), [], now=NOW)
