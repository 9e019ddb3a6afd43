"""What is remembered of a node group between decisions: since when its nodes are coming, and its back-off. Pure.

A group that doesn't deliver is asked for what it has, and left alone for a while, so that its pods get nodes elsewhere;
each further failure doubles the while, as for Cluster Autoscaler. The last desired capacity is kept for a minute,
because Auto Scaling's answers may be older: asking for less than that would terminate nodes.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from shared.api.meta import decode_annotation
from shared.base.struct import WireStruct, with_fields
from shared.node_groups.group_pools import coming_nodes
from shared.node_groups.node_group import is_expected

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from shared.api.kubernetes import Node
    from shared.node_groups.descriptions import AutoScalingGroup
    from shared.node_groups.group_pools import ComingNode
    from shared.node_groups.node_group import NodeGroup
    from shared.node_groups.options import NodeGroupOptions

RECORD = "node-groups"
"""The name of the record (shared/cluster/lease_record.py) with the states."""
ANSWERS_LAG = timedelta(seconds=60)
"""How old Auto Scaling's answers may be."""
TIMED_OUT = "timeout"
NOT_LAUNCHED = "placeholder-cannot-be-fulfilled"
"""Cluster Autoscaler's error codes: nodes didn't join in time, and instances couldn't be launched."""
_MAX_MESSAGE = 500
"""The states of all groups share one object."""


class GroupState(WireStruct, kw_only=True):
    """``desired`` was asked for at ``asked_at``; ``coming_since`` is None while no node is coming.

    ``backoff`` is the length of the last back-off, which ends at ``backoff_until``. ``given_up`` are the provider ids
    of instances that didn't become nodes in time. ``error_code`` and ``error_message`` say why it backs off, as in
    Cluster Autoscaler's status.
    """

    desired: int = 0
    asked_at: datetime | None = None
    coming_since: datetime | None = None
    backoff: timedelta = timedelta()
    backoff_until: datetime | None = None
    given_up: tuple[str, ...] = ()
    error_code: str = ""
    error_message: str = ""

    def is_backing_off(self, now: datetime) -> bool:
        """Whether the group is left alone."""
        return self.backoff_until is not None and now < self.backoff_until


def decode(text: str) -> dict[str, GroupState]:
    """The states by group; none if the text can't be read, as they may be lost."""
    try:
        return decode_annotation(text, dict[str, GroupState]) if text else {}
    except msgspec.MsgspecError:
        return {}


def encode(states: Mapping[str, GroupState]) -> str:
    """The text of the states, those that say nothing left out."""
    return msgspec.json.encode({name: s for name, s in sorted(states.items()) if s != GroupState()}).decode()


def as_asked(group: NodeGroup, state: GroupState, *, now: datetime) -> NodeGroup:
    """The group with the desired capacity that was asked for, if the answer may be older than that."""
    is_lagging = state.asked_at is not None and now - state.asked_at < ANSWERS_LAG
    if not is_lagging or state.desired <= group.desired:
        return group
    return with_fields(group, desired=min(state.desired, group.maximum))


def after_request(state: GroupState, desired: int, *, now: datetime) -> GroupState:
    """The state after the group was asked for more."""
    return with_fields(state, desired=desired, asked_at=now, coming_since=now)


def expected_nodes(
    group: NodeGroup, state: GroupState, nodes: Mapping[str, Node], options: NodeGroupOptions, *, now: datetime
) -> tuple[ComingNode, ...]:
    """The group's nodes that pods may wait for: without those that were given up.

    ``nodes`` are by provider id. While the group backs off, what isn't launched yet doesn't count.
    """
    within = options.max_node_provision_time
    coming = coming_nodes(group, nodes, now=now, within=within)
    is_held = state.is_backing_off(now)
    return tuple(n for n in coming if n.instance not in state.given_up and (n.instance or not is_held))


def after_look(state: GroupState, group: NodeGroup, coming: Sequence[ComingNode], *, now: datetime) -> GroupState:
    """The state after a look at the group and its coming nodes."""
    present = {instance.provider_id for instance in group.instances}
    state = with_fields(state, given_up=tuple(instance for instance in state.given_up if instance in present))
    if coming:
        return state if state.coming_since is not None else with_fields(state, coming_since=now)
    if state.coming_since is not None and not state.is_backing_off(now):  # it delivered
        return with_fields(
            state, coming_since=None, backoff=timedelta(), backoff_until=None, error_code="", error_message=""
        )
    return with_fields(state, coming_since=None)


def has_timed_out(state: GroupState, options: NodeGroupOptions, *, now: datetime) -> bool:
    """Whether nodes are coming for longer than they may take."""
    return state.coming_since is not None and now - state.coming_since >= options.max_node_provision_time


def after_failure(
    state: GroupState,
    options: NodeGroupOptions,
    *,
    now: datetime,
    given_up: Iterable[str] = (),
    error_code: str = "",
    error_message: str = "",
) -> GroupState:
    """The state after the group didn't deliver; ``given_up`` are the provider ids of instances that aren't nodes."""
    least, most = options.initial_node_group_backoff_duration, options.max_node_group_backoff_duration
    backoff = min(max(state.backoff * 2, least), most)
    return GroupState(
        backoff=backoff,
        backoff_until=now + backoff,
        given_up=(*state.given_up, *given_up),
        error_code=error_code,
        error_message=error_message[:_MAX_MESSAGE],
    )


def reduced_desired(group: AutoScalingGroup) -> int:
    """What a group is asked for that didn't deliver: the instances that it has, and no less than its minimum."""
    held = sum(is_expected(instance.lifecycle_state) for instance in group.instances)
    return min(group.desired_capacity, max(group.min_size, held))
