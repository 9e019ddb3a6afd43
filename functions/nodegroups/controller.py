"""One sweep over the nodes of groups: which are unneeded, which are removed, and a step of each drain.

Decisions are made under the cluster's lease, like all others, so that no pod is scheduled to a node that is chosen at
the same moment. Drains continue without it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from functions.nodegroups.drains import Drains
from functions.nodegroups.status_writer import write_status
from shared.api.meta import EventReason
from shared.api.pause import read_pause
from shared.api.taints import with_taint, without_taint
from shared.base.runtime import in_threads
from shared.base.struct import with_fields
from shared.cluster import lease_record, resources, writes
from shared.cluster.errors import NotFoundError
from shared.cluster.lease import hold
from shared.cluster.snapshot_reader import read_snapshot
from shared.node_groups import group_state, stored_options
from shared.node_groups.group_state import GroupState
from shared.node_groups.notifications import notify
from shared.node_groups.scale_down import (
    CANDIDATE_TAINT,
    is_being_removed,
    member_nodes,
    plan_scale_down,
    taint_time,
    timed_taint,
    with_removal,
    without_removal,
)
from shared.node_groups.status import REMOVED_TAINT, GroupView
from shared.termination.eviction import Evictor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from functions.nodegroups.settings import NodeGroupSettings
    from shared.api.kubernetes import Node
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.node_groups.node_group import NodeGroup
    from shared.node_groups.options import NodeGroupOptions
    from shared.node_groups.scale_down import MemberNode, ScaleDownPlan
    from shared.node_groups.services import GroupServices
    from shared.snapshot import Snapshot


class ScaleDownController:
    """One sweep. ``run`` is the id of its request."""

    def __init__(
        self,
        settings: NodeGroupSettings,
        *,
        run: str,
        logger: Logger,
        client: Client,
        recorder: Recorder,
        services: GroupServices,
    ) -> None:
        self._cluster = settings.cluster_name
        self._notify = partial(notify, services.events, bus=settings.event_bus_name, cluster=settings.cluster_name)
        self._run = run
        self._logger = logger
        self._client = client
        self._recorder = recorder
        self._services = services

    def reconcile(self, *, until: datetime) -> int:
        """Mark nodes, choose those to remove, and take a step of each drain; how many instances were terminated.

        Raises:
            ApiError: the API server can't be read.
            ClientError, BotoCoreError: AWS refuses a call.
            LeaseHeldError: another function is deciding.
            LeaseLostError: this one took too long.
        """
        clock = self._services.clock
        now = clock()
        if stored_options.cluster_autoscaler_runs(self._client, now=now):
            self._logger.info("Node groups aren't scaled", extra={"why": "Cluster Autoscaler is running"})
            return 0
        options, _ = stored_options.read_options(self._client)  # the provisioner reports what is wrong
        groups = self._groups(options, now)
        if not groups:
            return 0
        with hold(self._client, cluster=self._cluster, holder=f"nodegroups/{self._run}", now=clock) as lease:
            snapshot = read_snapshot(self._client, now=now)
            members = member_nodes(snapshot, groups)
            plan = plan_scale_down(snapshot, members, options, now=now)
            pause = read_pause(lease.annotations, now=now)
            if pause is not None and plan.remove:
                self._logger.info("No node of a group is removed", extra={"why": pause.message})
                plan = with_fields(plan, remove=())  # nodes stay marked, and removals that have begun continue
            lease.check()
            removed = {member.name for member in plan.remove}
            marked = in_threads(lambda member: self._mark(member, plan, removed, now), members)
        members = tuple(member for member in marked if member is not None)
        for member in plan.remove:
            self._logger.info(
                "Removing a node of a group",
                extra={"node": member.name, "group": member.group.name, "pods": len(member.moving)},
            )
            self._recorder.record(
                member.node.ref, "Normal", EventReason("ScaleDown"), "marked the node as toBeDeleted/unschedulable"
            )
        drains = Drains(
            client=self._client,
            recorder=self._recorder,
            evictor=Evictor(client=self._client, recorder=self._recorder, now=clock),
            options=options,
            run=self._run,
            logger=self._logger,
            notify=self._notify,
            autoscaling=self._services.autoscaling(),
        )
        removed_nodes = drains.step(members, now=now, until=until)
        self._write_status(groups, snapshot, members, plan, options, now)
        return removed_nodes

    def _write_status(
        self,
        groups: Sequence[NodeGroup],
        snapshot: Snapshot,
        members: Sequence[MemberNode],
        plan: ScaleDownPlan,
        options: NodeGroupOptions,
        now: datetime,
    ) -> None:
        """Publish the status of the groups as Cluster Autoscaler does."""
        record = lease_record.read(self._client, cluster=self._cluster, record=group_state.RECORD)
        states = group_state.decode(record.text)
        nodes = {node.metadata.name: node for node in snapshot.nodes} | {m.name: m.node for m in members}
        by_id = {node.spec.provider_id: node for node in nodes.values()}
        candidates = {(m.group.name, m.name) for m in plan.unneeded} - {(m.group.name, m.name) for m in plan.remove}
        views = []
        for answered in groups:
            state = states.get(answered.name, GroupState())
            group = group_state.as_asked(answered, state, now=now)
            coming = group_state.expected_nodes(group, state, by_id, options, now=now)
            own = frozenset(node for name, node in candidates if name == group.name)
            views.append(GroupView(group=group, state=state, coming=coming, candidates=own))
        write_status(self._client, views, nodes.values(), now=now)

    def _groups(self, options: NodeGroupOptions, now: datetime) -> list[NodeGroup]:
        groups = self._services.groups(self._cluster, now=now)
        return [group for group in groups if not options.groups or group.name in options.groups]

    def _mark(self, member: MemberNode, plan: ScaleDownPlan, removed: set[str], now: datetime) -> MemberNode | None:
        """The node with the taints that the plan wants on it; None if it is gone."""
        change: Callable[[Node], Node] | None = None
        if taint_time(member.node, REMOVED_TAINT) is not None and not is_being_removed(member.node):
            change = without_removal
        elif member.name in removed:
            change = partial(with_removal, now=now)
        elif member in plan.unneeded and taint_time(member.node, CANDIDATE_TAINT) is None:
            change = partial(_with_candidate_taint, now=now)
        elif member in plan.needed:
            change = _without_candidate_taint
        if change is None:
            return member
        try:
            return with_fields(member, node=writes.update(self._client, resources.NODES, member.node, change))
        except NotFoundError:
            return None


def _with_candidate_taint(node: Node, *, now: datetime) -> Node:
    """The node with the taint of unneeded ones, which keeps its time if it is there."""
    if taint_time(node, CANDIDATE_TAINT) is not None:
        return node
    taints = with_taint(node.spec.taints, timed_taint(CANDIDATE_TAINT, now))
    return with_fields(node, spec=with_fields(node.spec, taints=taints))


def _without_candidate_taint(node: Node) -> Node:
    return with_fields(node, spec=with_fields(node.spec, taints=without_taint(node.spec.taints, CANDIDATE_TAINT)))
