"""Handles events about the instances of node groups, as AWS's Node Termination Handler does in queue mode.

Every cluster of an account gets the Region's events, so only instances of the cluster's own groups are followed, and
none with a NodeClaim: those are the interruption function's. The node is cordoned and drained by the deadline; the
group's desired capacity stays, so Auto Scaling replaces the instance. EKS's own hooks are left to EKS.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from functions.nodegroups.members import members_with
from shared.base.struct import Struct, with_fields
from shared.cluster import resources, writes
from shared.cluster.errors import NotFoundError
from shared.interruptions.event_verification import SPOT_STATUS_LAG, STATE_LAG, Verdict, verify
from shared.interruptions.instance_lookup import instance_facts
from shared.interruptions.notice import Action, Evidence
from shared.node_groups.node_interruption import (
    MARGIN,
    NodeInterruption,
    WaitingHook,
    cordoned,
    interruption_of,
    merged,
    with_interruption,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger
    from mypy_boto3_ec2 import EC2Client

    from functions.nodegroups.members import Member
    from shared.api.kubernetes import Node
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.interruptions.event_verification import InstanceFacts
    from shared.interruptions.notice import Notice
    from shared.interruptions.parser import Event
    from shared.node_groups.services import GroupServices

EKS_HOOKS = frozenset({"Launch-LC-Hook", "Terminate-LC-Hook"})
"""The hooks of managed node groups, which EKS completes itself, after it has drained the node."""
_TERMINATING_WAIT = "Terminating:Wait"
_IN_SERVICE = "InService"


class Message(Struct, kw_only=True):
    """An SQS message with one event."""

    id: str
    event: Event


class Interruptions(Struct, kw_only=True):
    """The events of one invocation. ``ec2`` has short time-outs."""

    client: Client
    recorder: Recorder
    services: GroupServices
    ec2: Callable[[], EC2Client]
    cluster: str
    logger: Logger

    def mark(self, messages: Sequence[Message]) -> tuple[set[str], set[str]]:
        """Cordon the nodes of the events; their names, and the ids of messages to redeliver.

        Raises:
            ApiError: nodes or NodeClaims can't be listed.
            ClientError, BotoCoreError: AWS refuses a call.
        """
        now = self.services.clock()
        messages = [
            message
            for message in messages
            if message.event.notice.action is not Action.NO_ACTION
            and now - message.event.time <= message.event.notice.valid_for
        ]
        wanted = {id_ for message in messages for id_ in message.event.notice.instance_ids}
        latest = max((message.event.time for message in messages), default=now)
        members = members_with(wanted, self.client, self.services, cluster=self.cluster, latest_event=latest)
        facts = self._facts(messages, members)
        marked: set[str] = set()
        failed: set[str] = set()
        for message in messages:
            for id_ in sorted(members.keys() & set(message.event.notice.instance_ids)):
                if self._mark(message, members[id_], facts.get(id_), marked, now=now):
                    failed.add(message.id)
        return marked, failed

    def _mark(
        self, message: Message, member: Member, facts: InstanceFacts | None, marked: set[str], *, now: datetime
    ) -> bool:
        """Cordon the node if AWS doesn't contradict the event; whether it must be verified again."""
        notice = message.event.notice
        interruption, verdict = self._verified(message.event, member, facts, now=now)
        if interruption is not None and self._cordon(member, interruption, notice):
            marked.add(member.node.metadata.name)
        if verdict is Verdict.CONTRADICTED:
            extra = {"node": member.node.metadata.name, "state": member.state, "reason": notice.reason}
            self.logger.warning("Dropped an event that AWS contradicts", extra=extra)
        is_new = now - message.event.time < SPOT_STATUS_LAG
        return verdict is Verdict.PENDING or (verdict is Verdict.UNCONFIRMED and is_new)

    def _facts(self, messages: Sequence[Message], members: dict[str, Member]) -> Mapping[str, InstanceFacts]:
        evidence: dict[str, set[Evidence]] = {}
        for message in messages:
            for id_ in message.event.notice.instance_ids:
                if id_ in members and message.event.notice.evidence is not Evidence.NONE:
                    evidence.setdefault(id_, set()).add(message.event.notice.evidence)
        now = self.services.clock()
        return instance_facts(self.ec2(), evidence, now=now, logger=self.logger) if evidence else {}

    def _verified(
        self,
        event: Event,
        member: Member,
        facts: InstanceFacts | None,
        *,
        now: datetime,
    ) -> tuple[NodeInterruption | None, Verdict]:
        """The interruption to mark the node with, if any, and what AWS says of the event."""
        notice = event.notice
        interruption = NodeInterruption(reason=notice.reason, since=now, next_step=now)
        if notice.lifecycle_action is not None:
            return self._of_lifecycle_action(event, member, interruption)
        verdict = verify(notice.evidence, facts, age=now - event.time)
        if verdict in (Verdict.CONTRADICTED, Verdict.PENDING):
            return None, verdict
        scheduled_at = facts.scheduled_at if facts is not None else None
        effective_at = scheduled_at if notice.evidence is Evidence.SCHEDULED else notice.effective_at
        if verdict is Verdict.CONFIRMED and effective_at is not None:
            interruption = _with_deadline(interruption, effective_at)
        return interruption, verdict

    def _of_lifecycle_action(
        self, event: Event, member: Member, interruption: NodeInterruption
    ) -> tuple[NodeInterruption | None, Verdict]:
        action = event.notice.lifecycle_action
        assert action is not None
        is_own = bool(member.group.managed) and action.hook in EKS_HOOKS
        if is_own or action.group != member.group.name:
            return None, Verdict.CONFIRMED if is_own else Verdict.CONTRADICTED
        if member.state != _TERMINATING_WAIT:
            # Auto Scaling's answers may be older than its events.
            is_new = member.state == _IN_SERVICE and interruption.since - event.time < STATE_LAG
            return None, Verdict.PENDING if is_new else Verdict.CONTRADICTED
        described = self.services.autoscaling().describe_lifecycle_hooks(
            AutoScalingGroupName=action.group, LifecycleHookNames=[action.hook]
        )["LifecycleHooks"]
        if not described:
            return None, Verdict.CONTRADICTED
        timeout, maximum = int(described[0]["HeartbeatTimeout"]), int(described[0]["GlobalTimeout"])
        hook = WaitingHook(
            group=action.group, name=action.hook, token=action.token, timeout=timeout, heartbeat_at=event.time
        ).beaten(event.time)
        ends_at = event.time + timedelta(seconds=maximum)
        return _with_deadline(interruption, ends_at, hooks=(hook,)), Verdict.CONFIRMED

    def _cordon(self, member: Member, interruption: NodeInterruption, notice: Notice) -> bool:
        """Cordon the node and write its interruption; False if it is gone, or the event adds nothing."""
        changed = False

        def change(node: Node) -> Node:
            nonlocal changed
            before = interruption_of(node)
            after = merged(before, interruption)
            changed = after is not before
            return with_interruption(cordoned(node, interruption), after) if changed else node

        try:
            writes.update(self.client, resources.NODES, member.node, change)
        except NotFoundError:
            return False
        if changed:
            extra = {"node": member.node.metadata.name, "group": member.group.name, "why": notice.message}
            self.logger.info("Draining a node of a group", extra=extra)
            self.recorder.record(member.node.ref, "Warning", notice.reason, notice.message)
        return changed


def _with_deadline(
    interruption: NodeInterruption, ends_at: datetime, *, hooks: tuple[WaitingHook, ...] = ()
) -> NodeInterruption:
    return with_fields(interruption, deadline=ends_at - MARGIN, hooks=hooks)
