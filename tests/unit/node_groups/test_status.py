"""The status of node groups in Cluster Autoscaler's format."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import yaml

from shared.api.kubernetes import Node, NodeSpec, NodeStatus, Taint
from shared.api.meta import Condition, ObjectMeta
from shared.node_groups import group_state, status
from shared.node_groups.group_pools import ComingNode
from shared.node_groups.group_state import GroupState
from shared.node_groups.node_group import GroupInstance, NodeGroup
from shared.node_groups.options import NodeGroupOptions
from shared.node_groups.status import GroupView

if TYPE_CHECKING:
    from shared.node_groups.status import Document

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def instance(number: int, state: str = "InService") -> GroupInstance:
    return GroupInstance(id=f"i-{number}", zone="us-east-1a", instance_type="m5.large", state=state)


def node(number: int, *, ready: bool = True, age: timedelta = 60 * MINUTE, taint: str = "") -> Node:
    return Node(
        metadata=ObjectMeta(name=f"node-{number}", creation_timestamp=NOW - age),
        spec=NodeSpec(
            provider_id=f"aws:///us-east-1a/i-{number}",
            taints=[Taint(key=taint, value="1", effect="NoSchedule")] if taint else [],
        ),
        status=NodeStatus(conditions=[Condition(type="Ready", status="True" if ready else "False")]),
    )


def group(*instances: GroupInstance, desired: int | None = None) -> NodeGroup:
    desired = len(instances) if desired is None else desired
    return NodeGroup(name="batch", minimum=0, maximum=6, desired=desired, instances=instances)


def only(document: Document) -> Document:
    (of_group,) = document["nodeGroups"]
    return dict(of_group)


def test_nodes_are_counted_by_what_they_are() -> None:
    given_up = instance(6)
    view = GroupView(
        group=group(*(instance(n) for n in range(1, 6)), given_up, instance(7, "Pending"), desired=9),
        state=GroupState(given_up=(given_up.provider_id,)),
    )
    nodes = [
        node(1),
        node(2, ready=False, age=5 * MINUTE),
        node(3, ready=False),
        node(4, taint=status.REMOVED_TAINT),
        node(5),
        node(99),  # of no group
    ]
    document = status.document([view], nodes, {}, now=NOW)
    assert only(document)["health"] == {
        "status": "Healthy",
        "nodeCounts": {
            "registered": {
                "total": 5,
                "ready": 2,
                "notStarted": 1,
                "beingDeleted": 1,
                "unready": {"total": 1, "resourceUnready": 0},
            },
            "longUnregistered": 1,
            "unregistered": 3,
        },
        "cloudProviderTarget": 9,
        "minSize": 0,
        "maxSize": 6,
        "lastProbeTime": "2026-03-01T12:00:00.000000Z",
        "lastTransitionTime": "2026-03-01T12:00:00.000000Z",
    }
    wide = document["clusterWide"]["health"]["nodeCounts"]
    assert (wide["registered"]["total"], wide["longUnregistered"], wide["unregistered"]) == (6, 1, 3)


@pytest.mark.parametrize(("unready", "ready", "health"), [(3, 0, "Healthy"), (4, 5, "Healthy"), (4, 4, "Unhealthy")])
def test_few_unready_nodes_are_healthy(unready: int, ready: int, health: str) -> None:
    nodes = [node(n, ready=n >= unready) for n in range(unready + ready)]
    view = GroupView(group=group(*(instance(n) for n in range(unready + ready))), state=GroupState())
    document = status.document([view], nodes, {}, now=NOW)
    assert only(document)["health"]["status"] == document["clusterWide"]["health"]["status"] == health


def test_what_goes_on_is_said_of_the_group_and_of_the_cluster() -> None:
    failed = group_state.after_failure(
        GroupState(), NodeGroupOptions(), now=NOW, error_code=group_state.TIMED_OUT, error_message="none joined"
    )
    coming = (ComingNode(name="batch/0"),)

    def conditions(view: GroupView) -> tuple[Document, str, str]:
        document = status.document([view], [], {}, now=NOW)
        wide = document["clusterWide"]
        own = {key: value for key, value in only(document)["scaleUp"].items() if not key.startswith("last")}
        assert wide["scaleDown"] == only(document)["scaleDown"]
        return own, wide["scaleUp"]["status"], wide["scaleDown"]["status"]

    back_off = {"status": "Backoff", "backoffInfo": {"errorCode": "timeout", "errorMessage": "none joined"}}
    grown, idle = {"status": "InProgress"}, {"status": "NoActivity"}
    assert conditions(GroupView(group=group(), state=GroupState())) == (idle, "NoActivity", "NoCandidates")
    assert conditions(GroupView(group=group(), state=GroupState(), coming=coming)) == (grown, *IN_PROGRESS)
    assert conditions(GroupView(group=group(), state=failed)) == (back_off, "NoActivity", "NoCandidates")
    assert conditions(GroupView(group=group(), state=failed, coming=coming)) == (grown, *IN_PROGRESS)
    unneeded = GroupView(group=group(), state=GroupState(), candidates=frozenset({"a", "b"}))
    assert conditions(unneeded) == (idle, "NoActivity", "CandidatesPresent")
    assert only(status.document([unneeded], [], {}, now=NOW))["scaleDown"]["candidates"] == 2


IN_PROGRESS = ("InProgress", "NoCandidates")


def test_transition_times_stay_while_the_status_is_the_same() -> None:
    idle = GroupView(group=group(), state=GroupState())
    first = status.document([idle], [], {}, now=NOW)
    busy = GroupView(group=group(), state=GroupState(), candidates=frozenset({"a"}))
    second = status.document([busy], [], status.parse(status.encode(first)), now=NOW + MINUTE)
    then, now = "2026-03-01T12:00:00.000000Z", "2026-03-01T12:01:00.000000Z"
    for part in (second["clusterWide"], only(second)):
        times = {name: part[name]["lastTransitionTime"] for name in ("health", "scaleUp", "scaleDown")}
        assert times == {"health": then, "scaleUp": then, "scaleDown": now}
        assert part["scaleUp"]["lastProbeTime"] == now


def test_it_is_written_when_it_changes_and_otherwise_each_five_minutes() -> None:
    view = GroupView(group=group(), state=GroupState())

    def due(before: Document, later: timedelta, view: GroupView = view) -> bool:
        return status.is_due(status.document([view], [], before, now=NOW + later), before)

    assert due({}, timedelta())
    before = status.parse(status.encode(status.document([view], [], {}, now=NOW)))
    assert not due(before, 4 * MINUTE)
    assert due(before, 5 * MINUTE)
    assert due(before, MINUTE, GroupView(group=group(desired=1), state=GroupState()))


@pytest.mark.parametrize("text", ["", "Cluster-autoscaler status at 2023-01-01:\nCluster-wide:\n", "a: [", "- 1", "3"])
def test_a_status_in_another_format_is_replaced(text: str) -> None:
    view = GroupView(group=group(), state=GroupState())
    before = status.parse(text)
    assert status.is_due(status.document([view], [], before, now=NOW), before)


@pytest.mark.parametrize("garbage", [{"nodeGroups": 3}, {"nodeGroups": [7]}, {"clusterWide": []}, {"time": 5}])
def test_a_status_with_other_types_is_replaced(garbage: Document) -> None:
    view = GroupView(group=group(), state=GroupState())
    document = status.document([view], [], garbage, now=NOW)
    assert status.is_due(document, garbage)
    assert yaml.safe_load(status.encode(document)) == document
    assert status.encode(document).splitlines()[:2] == [
        "time: 2026-03-01 12:00:00.000000 +0000 UTC",
        "autoscalerStatus: Running",
    ]
