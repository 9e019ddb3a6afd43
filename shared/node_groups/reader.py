"""Reads the node groups for one round of provisioning, and gives up on nodes that don't come. It writes nothing.

Imported only where the deployment scales node groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.duration import format_duration
from shared.base.struct import Struct, with_fields
from shared.cluster import lease_record
from shared.node_groups import expander, group_state, stored_options
from shared.node_groups.group_pools import DEFAULT_WEIGHT, GroupPool
from shared.node_groups.group_state import GroupState
from shared.node_groups.template_node import group_instance_types, template_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime, timedelta

    from shared.api.kubernetes import Node
    from shared.cluster.client import Client
    from shared.cluster.lease_record import LeaseRecord
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.node_groups.expander import Priorities
    from shared.node_groups.group_pools import ComingNode
    from shared.node_groups.node_group import NodeGroup
    from shared.node_groups.options import NodeGroupOptions
    from shared.node_groups.services import AutoScaling, GroupServices
    from shared.snapshot import Snapshot

_RECENT = 10
"""How many of a group's activities are looked at."""
_FAILED = frozenset({"Failed", "Cancelled"})


class GivenUp(Struct, kw_only=True):
    """A group whose nodes didn't come, why, and how long it is left alone."""

    group: NodeGroup
    why: str
    backoff: timedelta


class GroupsInView(Struct, kw_only=True):
    """The node groups of one round: ``pools`` are those that decisions can use, ``groups`` all that are scaled.

    ``record`` is what was remembered of them, ``states`` what is now; ``given_up`` are those that didn't deliver.
    ``problems`` say what of the options and groups can't be used.
    """

    options: NodeGroupOptions
    groups: tuple[NodeGroup, ...]
    pools: tuple[GroupPool, ...]
    priorities: Priorities
    record: LeaseRecord
    states: Mapping[str, GroupState]
    given_up: tuple[GivenUp, ...]
    problems: tuple[str, ...]


def read_groups(
    client: Client,
    snapshot: Snapshot,
    services: GroupServices,
    *,
    cluster: str,
    catalog: InstanceTypeCatalog,
    now: datetime,
) -> GroupsInView | None:
    """The groups of a round; None if there are none to scale. The catalog knows their types' sizes and prices.

    Raises:
        ApiError: the API server can't be read.
        ClientError, BotoCoreError: AWS refuses a call.
    """
    options, problems = stored_options.read_options(client)
    groups = tuple(g for g in services.groups(cluster, now=now) if not options.groups or g.name in options.groups)
    if not groups:
        return None
    record = lease_record.read(client, cluster=cluster, record=group_state.RECORD)
    before = group_state.decode(record.text)
    nodes = {node.spec.provider_id: node for node in snapshot.nodes if node.spec.provider_id}
    observations = [
        _observe(services.autoscaling(), group, before.get(group.name, GroupState()), nodes, options, now)
        for group in groups
    ]
    types = group_instance_types(catalog, {name for group in groups for name in group.instance_types})
    pools = tuple(
        GroupPool(
            group=seen.group,
            node=node,
            coming=seen.coming,
            weight=DEFAULT_WEIGHT + expander.preference(options),
            held=_held(seen.group, seen.state, now),
        )
        for seen in observations
        if (node := template_node(seen.group, types, snapshot.nodes)) is not None
    )
    priorities, unusable = _priorities(client, options)
    return GroupsInView(
        options=options,
        groups=groups,
        pools=pools,
        priorities=priorities,
        record=record,
        states={seen.group.name: seen.state for seen in observations},
        given_up=tuple(seen.given_up for seen in observations if seen.given_up is not None),
        problems=(*problems, *unusable, *_group_problems(observations, pools)),
    )


def _priorities(client: Client, options: NodeGroupOptions) -> tuple[Priorities, tuple[str, ...]]:
    """The priorities of the expander of that name, and what of them can't be used; none without it."""
    if "priority" not in options.expander:
        return (), ()
    config_map = stored_options.read_config_map(client, expander.PRIORITIES)
    return expander.parse_priorities(config_map.data.get("priorities", ""))


def _observe(
    autoscaling: AutoScaling,
    answered: NodeGroup,
    state: GroupState,
    nodes: Mapping[str, Node],
    options: NodeGroupOptions,
    now: datetime,
) -> _Observation:
    """The group with what is coming, and what is remembered of it from now on."""
    group = group_state.as_asked(answered, state, now=now)
    coming = expected = group_state.expected_nodes(group, state, nodes, options, now=now)
    state = group_state.after_look(state, group, coming, now=now)
    why = ""
    launched = tuple(node for node in coming if node.instance)
    if group_state.has_timed_out(state, options, now=now):
        why = f"nodes didn't join within {format_duration(options.max_node_provision_time)}"
        given_up = [node.instance for node in launched]
        code, coming = group_state.TIMED_OUT, ()
        state = group_state.after_failure(
            state, options, now=now, given_up=given_up, error_code=code, error_message=why
        )
    elif len(launched) < len(coming) and (why := _launch_failure(autoscaling, group.name, since=state.coming_since)):
        code, coming = group_state.NOT_LAUNCHED, launched
        state = group_state.after_failure(state, options, now=now, error_code=code, error_message=why)
    if not why:
        return _Observation(group=group, state=state, coming=coming)
    return _Observation(
        # Before it is asked for less, it is described again: its answer here may be old.
        group=with_fields(group, desired=group.desired - sum(not node.instance for node in expected)),
        state=state,
        coming=coming,
        given_up=GivenUp(group=group, why=why, backoff=state.backoff),
    )


class _Observation(Struct, kw_only=True):
    group: NodeGroup
    state: GroupState
    coming: tuple[ComingNode, ...]
    given_up: GivenUp | None = None


def _launch_failure(autoscaling: AutoScaling, group: str, *, since: datetime | None) -> str:
    """Why the group couldn't launch an instance since then; "" if nothing failed."""
    answer = autoscaling.describe_scaling_activities(AutoScalingGroupName=group, MaxRecords=_RECENT)
    for activity in answer["Activities"]:
        if activity["StatusCode"] in _FAILED and (since is None or activity["StartTime"] >= since):
            return str(activity.get("StatusMessage") or activity.get("Description", ""))
    return ""


def _held(group: NodeGroup, state: GroupState, now: datetime) -> str:
    """Why the group isn't asked for nodes now; "" if it may be."""
    if group.problems:
        return group.problems[0]
    if state.is_backing_off(now):
        return f"the node group didn't deliver and is left alone until {state.backoff_until:%H:%M:%S} UTC"
    return ""


def _group_problems(observations: Iterable[_Observation], pools: Iterable[GroupPool]) -> Iterator[str]:
    usable = {pool.group.name for pool in pools}
    for seen in observations:
        if seen.group.problems:
            yield f"group {seen.group.name}: {seen.group.problems[0]}"
        elif seen.group.name not in usable:
            yield f"group {seen.group.name}: its instance types aren't in the catalog"
