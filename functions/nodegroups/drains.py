"""Drains nodes of groups and terminates their instances: one step for each node that is marked as being removed.

The mark is Cluster Autoscaler's taint ``ToBeDeletedByClusterAutoscaler``, so a drain survives any crash: whoever sees
the node next continues. A drain that takes too long is given up.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from functions.nodegroups.node_pods import drain_step_of
from shared.api.meta import EventReason, ObjectMeta, annotated
from shared.api.nodeclaim import NodeClaim
from shared.base.struct import Struct, with_fields
from shared.cloud_provider import instance_id
from shared.cluster import resources, writes
from shared.cluster.errors import ConflictError, NotFoundError
from shared.cluster.watched_objects import list_pods_on_node
from shared.node_groups.discovery import describe
from shared.node_groups.notifications import SCALED_DOWN
from shared.node_groups.scale_down import (
    SCALE_DOWN_FAILED,
    is_being_removed,
    taint_time,
    without_removal,
)
from shared.node_groups.status import REMOVED_TAINT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from shared.api.kubernetes import Node
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.node_groups.options import NodeGroupOptions
    from shared.node_groups.scale_down import MemberNode
    from shared.node_groups.services import AutoScaling
    from shared.termination.drain import DrainStep
    from shared.termination.eviction import Evictor

EVICTION_RETRIES = timedelta(minutes=2)
"""How long an eviction is tried again that a budget doesn't allow (Cluster Autoscaler's max-pod-eviction-time)."""
TERMINATE_REQUESTED = "tenon.sh/terminate-requested"
"""Annotation of a node: who asked for its instance's termination, and when. Only one invocation does at a time."""
_REQUEST_EXPIRES = timedelta(seconds=60)


class Drains(Struct, kw_only=True):
    """The drains of one invocation. ``run`` is its id."""

    client: Client
    recorder: Recorder
    evictor: Evictor
    options: NodeGroupOptions
    run: str
    logger: Logger
    notify: Callable[..., None]
    autoscaling: AutoScaling

    def step(self, members: Iterable[MemberNode], *, now: datetime, until: datetime) -> int:
        """One step for each node that is being removed; returns how many instances were terminated."""
        return sum(
            self._step(member, since, now=now, until=until)
            for member in members
            if is_being_removed(member.node) and (since := taint_time(member.node, REMOVED_TAINT)) is not None
        )

    def _step(self, member: MemberNode, since: datetime, *, now: datetime, until: datetime) -> bool:
        """Whether its instance was terminated."""
        step = self._drain_step(member, now)
        limit = timedelta(seconds=self.options.max_graceful_termination_sec) + EVICTION_RETRIES
        if step.terminate:
            return self._terminate(member, now=now, is_last=now - since >= limit)
        if now - since >= limit:
            self._give_up(member, f"its drain took longer than {limit}: {step.waiting_for}", now)
            return False
        outcomes = self.evictor.evict_all(step.evict, member.name, until=until)
        for outcome in sorted({outcome for outcome in outcomes if outcome}):
            self.recorder.record(member.node.ref, "Warning", "FailedDraining", outcome)
        return False

    def _drain_step(self, member: MemberNode, now: datetime) -> DrainStep:
        """What to do now, by the node's pods and volumes as they are now."""
        pods = list_pods_on_node(self.client, member.name).objects
        # A node of a group has no NodeClaim, and its drain no deadline.
        claim = NodeClaim(metadata=ObjectMeta(name=member.name))
        return drain_step_of(self.client, claim, pods, now=now)

    def _terminate(self, member: MemberNode, *, now: datetime, is_last: bool) -> bool:
        """Terminate the instance and make its group smaller, if the group still has it and is above its minimum.

        Returns whether it did. ``is_last``: the drain's time is over, so the node is given up if it fails.
        """
        group = describe(self.autoscaling, member.group.name)
        instance = instance_id(member.node.spec.provider_id)
        states = {i.instance_id: i.lifecycle_state for i in group.instances} if group is not None else {}
        if group is None or states.get(instance) != "InService":
            self.logger.info("A node's instance is terminated already", extra={"node": member.name})
            return False
        if group.desired_capacity <= group.min_size:
            self._give_up(member, f"group {member.group.name} is at its minimum size", now)
            return False
        if not self._reserve(member.node, now):
            return False
        try:
            self.autoscaling.terminate_instance_in_auto_scaling_group(
                InstanceId=instance, ShouldDecrementDesiredCapacity=True
            )
        except (BotoCoreError, ClientError) as error:
            self.logger.warning(
                "An instance couldn't be terminated",
                extra={"node": member.name, "instance": instance, "why": str(error)},
            )
            if is_last:
                self._give_up(member, f"its instance couldn't be terminated: {error}", now)
            else:
                self.recorder.record(member.node.ref, "Warning", EventReason("ScaleDownFailed"), str(error))
            return False
        self.logger.info(
            "Removed a node of a group",
            extra={
                "node": member.name,
                "group": member.group.name,
                "instance": instance,
                "to": group.desired_capacity - 1,
            },
        )
        self.recorder.record(member.node.ref, "Normal", EventReason("ScaleDown"), "node removed by cluster autoscaler")
        sizes = {"from": group.desired_capacity, "to": group.desired_capacity - 1, "minimum": group.min_size}
        self.notify(SCALED_DOWN, group=member.group.name, node=member.name, instance=instance, now=now, **sizes)
        return True

    def _reserve(self, node: Node, now: datetime) -> bool:
        """Whether this invocation is the one that terminates the instance."""
        own = f"{int(now.timestamp())} {self.run}"

        def change(current: Node) -> Node:
            if not is_being_removed(current):
                return current  # given up meanwhile
            seconds, _, _ = current.metadata.annotations.get(TERMINATE_REQUESTED, "").partition(" ")
            if seconds.isdigit() and now.timestamp() - int(seconds) < _REQUEST_EXPIRES.total_seconds():
                return current
            return with_fields(current, metadata=annotated(current.metadata, {TERMINATE_REQUESTED: own}))

        try:
            stored = writes.update(self.client, resources.NODES, node, change)
        except (ConflictError, NotFoundError):
            return False
        return stored.metadata.annotations.get(TERMINATE_REQUESTED) == own

    def _give_up(self, member: MemberNode, why: str, now: datetime) -> None:
        """Let the node take pods again; it is unneeded again from then on."""
        failed = str(int(now.timestamp()))

        def change(node: Node) -> Node:
            kept = without_removal(node)
            return with_fields(kept, metadata=annotated(kept.metadata, {SCALE_DOWN_FAILED: failed}))

        self.logger.warning("A node isn't removed after all", extra={"node": member.name, "why": why})
        try:
            writes.update(self.client, resources.NODES, member.node, change)
        except (ConflictError, NotFoundError):
            return
        self.recorder.record(member.node.ref, "Warning", EventReason("ScaleDownFailed"), why)
