"""What is remembered of a node group: requests that answers may not show yet, nodes that don't come, back-off."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from shared.node_groups import group_state
from shared.node_groups.descriptions import AutoScalingGroup
from shared.node_groups.group_pools import ComingNode
from shared.node_groups.group_state import GroupState
from shared.node_groups.node_group import GroupInstance, NodeGroup
from shared.node_groups.options import NodeGroupOptions

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OPTIONS = NodeGroupOptions()
MINUTE = timedelta(minutes=1)
COMING = (ComingNode(name="workers/0"),)


def group(**fields: Any) -> NodeGroup:
    return NodeGroup(name="workers", **{"minimum": 1, "maximum": 9, "desired": 3, **fields})


def instance(number: int, state: str = "InService") -> GroupInstance:
    return GroupInstance(id=f"i-{number}", zone="us-east-1a", instance_type="m5.large", state=state)


def test_an_answer_that_may_be_older_than_the_request_counts_as_the_request() -> None:
    state = group_state.after_request(GroupState(), 7, now=NOW)
    assert group_state.as_asked(group(), state, now=NOW + MINUTE / 2).desired == 7
    assert group_state.as_asked(group(), state, now=NOW + MINUTE).desired == 3
    assert group_state.as_asked(group(desired=8), state, now=NOW).desired == 8
    assert group_state.as_asked(group(maximum=5), state, now=NOW).desired == 5


def test_nodes_time_out_from_the_last_request() -> None:
    state = group_state.after_look(GroupState(), group(), COMING, now=NOW)
    state = group_state.after_look(state, group(), COMING, now=NOW + 10 * MINUTE)
    assert not group_state.has_timed_out(state, OPTIONS, now=NOW + 14 * MINUTE)
    assert group_state.has_timed_out(state, OPTIONS, now=NOW + 15 * MINUTE)
    state = group_state.after_request(state, 4, now=NOW + 10 * MINUTE)
    assert not group_state.has_timed_out(state, OPTIONS, now=NOW + 15 * MINUTE)


def test_the_back_off_doubles_until_the_group_delivers() -> None:
    state, lengths, now = GroupState(), [], NOW
    for _ in range(4):
        state = group_state.after_failure(state, OPTIONS, now=now)
        lengths.append(int(state.backoff / MINUTE))
        assert state.is_backing_off(now)
        now += state.backoff
        assert not state.is_backing_off(now)
        state = group_state.after_request(state, 4, now=now)
    assert lengths == [5, 10, 20, 30]
    state = group_state.after_look(state, group(), (), now=now)
    assert state.backoff == timedelta()


def test_a_node_that_came_before_the_failure_ends_no_back_off() -> None:
    state = group_state.after_failure(GroupState(), OPTIONS, now=NOW)
    state = group_state.after_look(state, group(), COMING, now=NOW + MINUTE)
    state = group_state.after_look(state, group(), (), now=NOW + 2 * MINUTE)
    assert state.is_backing_off(NOW + 4 * MINUTE)


def test_instances_that_were_given_up_are_not_waited_for_as_long_as_they_exist() -> None:
    broken = instance(1)
    own = group(desired=1, instances=(broken,))
    state = group_state.after_failure(GroupState(), OPTIONS, now=NOW, given_up=[broken.provider_id])
    assert group_state.expected_nodes(own, state, {}, OPTIONS, now=NOW) == ()
    assert group_state.after_look(state, own, (), now=NOW).given_up == (broken.provider_id,)
    assert group_state.after_look(state, group(), (), now=NOW).given_up == ()


def test_while_it_backs_off_only_launched_instances_are_waited_for() -> None:
    own = group(desired=3, instances=(instance(1, "Pending"),))
    state = group_state.after_failure(GroupState(), OPTIONS, now=NOW)
    during, after = (group_state.expected_nodes(own, state, {}, OPTIONS, now=now) for now in (NOW, NOW + state.backoff))
    assert [node.name for node in during] == ["workers/i-1"]
    assert len(after) == 3


@pytest.mark.parametrize(
    ("desired", "states", "reduced"),
    [
        (5, ["InService", "Pending"], 2),
        (5, [], 1),
        (1, ["InService", "InService"], 1),
        (3, ["Terminating", "Warmed:Stopped"], 1),
    ],
)
def test_a_group_that_does_not_deliver_is_asked_for_what_it_has(desired: int, states: list[str], reduced: int) -> None:
    raw = {
        "AutoScalingGroupName": "workers",
        "MinSize": 1,
        "MaxSize": 9,
        "DesiredCapacity": desired,
        "Instances": [{"InstanceId": f"i-{i}", "LifecycleState": state} for i, state in enumerate(states)],
    }
    assert group_state.reduced_desired(msgspec.convert(raw, AutoScalingGroup)) == reduced


def test_states_are_written_without_those_that_say_nothing() -> None:
    states = {"a": GroupState(), "b": group_state.after_request(GroupState(), 2, now=NOW)}
    assert group_state.decode(group_state.encode(states)) == {"b": states["b"]}
    assert group_state.decode("") == group_state.decode("no JSON") == {}
