"""Drains nodes of groups whose instances end: one step a message, and then the hooks that wait are completed.

Each step writes when the next one is due before it evicts, with a precondition, so of several messages at once one is
followed; the next message is sent before the first eviction, so a crash costs seconds. The minute's sweep continues a
drain whose message was lost.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from functions.nodegroups.node_pods import drain_step_of
from shared.api import labels as names
from shared.api.kubernetes import Node
from shared.api.meta import ObjectMeta
from shared.api.nodeclaim import NodeClaim
from shared.api.pods import is_terminating
from shared.base import aws, hints, queues
from shared.base.struct import Struct, with_fields
from shared.cluster import resources, writes
from shared.cluster.errors import ConflictError, NotFoundError
from shared.cluster.watched_objects import list_pods_on_node
from shared.node_groups.node_interruption import earliest, interruption_of, with_interruption
from shared.termination import requeue
from shared.termination.drain import last_eviction, last_termination
from shared.termination.requeue import MAX_REQUEUES, WaitReason

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from aws_lambda_powertools import Logger
    from mypy_boto3_sqs import SQSClient

    from functions.nodegroups.settings import NodeGroupSettings
    from shared.api.kubernetes import Pod
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.node_groups.node_interruption import NodeInterruption, WaitingHook
    from shared.node_groups.services import GroupServices
    from shared.termination.drain import DrainStep
    from shared.termination.eviction import Evictor

_ENDED = "ValidationError"
"""Auto Scaling's error for a lifecycle action that has ended."""


class InterruptedDrains(Struct, kw_only=True):
    """The drains that one invocation steps. ``requeues`` is how many messages the chain has had."""

    client: Client
    recorder: Recorder
    evictor: Evictor
    settings: NodeGroupSettings
    logger: Logger
    services: GroupServices
    sqs: SQSClient
    requeues: int = 0
    _stepped: set[str] = set()

    def sweep(self, nodes: Iterable[Node], *, until: datetime) -> None:
        """Continue the drains whose message was lost."""
        for node in nodes:
            interruption = interruption_of(node)
            if interruption is not None and interruption.is_overdue(self.services.clock()):
                self.logger.warning("Continuing a drain whose message was lost", extra={"node": node.metadata.name})
                self.step(node.metadata.name, until=until)

    def step(self, node_name: str, *, until: datetime) -> bool:
        """One step of the node's drain, if one is due; False if its message must be redelivered."""
        if node_name in self._stepped:
            return True
        self._stepped.add(node_name)
        now = self.services.clock()
        try:
            node = writes.read(self.client, resources.NODES, node_name, Node)
            interruption = interruption_of(node)
            if interruption is None or not interruption.is_due(now):
                return True
            return self._step(node, interruption, now=now, until=until)
        except NotFoundError:
            return True
        except ConflictError:
            return False

    def _step(self, node: Node, interruption: NodeInterruption, *, now: datetime, until: datetime) -> bool:
        claim = _substitute_nodeclaim(node, interruption)
        pods = list_pods_on_node(self.client, node.metadata.name).objects
        step = drain_step_of(self.client, claim, pods, now=now)
        if step.terminate:
            self._delete(step, node, interruption)
            return self._complete(node, interruption)
        hooks = tuple(self._heartbeat(hook, now) for hook in interruption.hooks)
        wait = _wait(claim, step, pods, hooks, now=now)
        # With the resourceVersion that was read: of two invocations one continues.
        self._write(node, with_fields(interruption, hooks=hooks, next_step=now + wait))
        self._send(node.metadata.name, wait)
        outcomes = self.evictor.evict_all(step.evict, node.metadata.name, until=until)
        for outcome in sorted({outcome for outcome in outcomes if outcome}):
            self.recorder.record(node.ref, "Warning", "FailedDraining", outcome)
        self._delete(step, node, interruption)
        return True

    def _delete(self, step: DrainStep, node: Node, interruption: NodeInterruption) -> None:
        """Delete the pods that the deadline doesn't wait for."""
        if interruption.deadline is None:
            return
        why = f"node {node.metadata.name} must be drained by {interruption.deadline:%H:%M:%S} UTC"
        for pod, grace in step.delete:
            self.evictor.delete(pod, grace, node_name=node.metadata.name, why=why)

    def _complete(self, node: Node, interruption: NodeInterruption) -> bool:
        """Complete the hooks of a drained node; False if Auto Scaling couldn't be called."""
        for hook in interruption.hooks:
            try:
                self.services.autoscaling().complete_lifecycle_action(
                    **_action(hook, node), LifecycleActionResult="CONTINUE"
                )
            except ClientError as error:
                if aws.error_code(error) != _ENDED:
                    raise
                self.logger.info("A lifecycle action has ended already", extra=_extra(hook, node, error))
                continue
            self.logger.info("Completed a lifecycle action", extra=_extra(hook, node))
        self._write(node, with_fields(interruption, hooks=(), drained=True))
        self.logger.info("Drained an interrupted node", extra={"node": node.metadata.name})
        return True

    def _heartbeat(self, hook: WaitingHook, now: datetime) -> WaitingHook:
        """The hook after its heartbeat, if one is due. Auto Scaling ends the wait at the hook's maximum anyway."""
        if now < hook.heartbeat_at:
            return hook
        try:
            self.services.autoscaling().record_lifecycle_action_heartbeat(
                AutoScalingGroupName=hook.group, LifecycleHookName=hook.name, LifecycleActionToken=hook.token
            )
        except ClientError as error:
            self.logger.warning("A heartbeat failed", extra={"hook": hook.name, "why": str(error)})
            return hook
        return hook.beaten(now)

    def _write(self, node: Node, interruption: NodeInterruption) -> None:
        """Write the interruption, if nobody has changed the node since it was read.

        Raises:
            ConflictError: somebody has.
            NotFoundError: the node is gone.
        """
        annotations = with_interruption(node, interruption).metadata.annotations
        metadata = {"resourceVersion": node.metadata.resource_version, "annotations": annotations}
        self.client.patch(resources.NODES.path(node.metadata.name), {"metadata": metadata})

    def _send(self, node_name: str, wait: timedelta) -> None:
        """Send the message of the next step; a chain that is too long is continued by the sweep."""
        if self.requeues >= MAX_REQUEUES:
            return
        now, cluster = self.services.clock(), self.settings.cluster_name
        for body in hints.message_bodies(
            hints.DRAIN, cluster=cluster, keys=[node_name], time=now, requeues=self.requeues + 1
        ):
            queues.send_delayed(self.sqs, self.settings.node_group_queue_url, body=body, delay=wait)


def _action(hook: WaitingHook, node: Node) -> dict[str, str]:
    return {
        "AutoScalingGroupName": hook.group,
        "LifecycleHookName": hook.name,
        "LifecycleActionToken": hook.token,
        "InstanceId": node.spec.provider_id.rpartition("/")[2],
    }


def _extra(hook: WaitingHook, node: Node, error: ClientError | None = None) -> dict[str, str]:
    why = {"why": str(error)} if error is not None else {}
    return {"node": node.metadata.name, "group": hook.group, "hook": hook.name, **why}


def _substitute_nodeclaim(node: Node, interruption: NodeInterruption) -> NodeClaim:
    """What a drain's step reads of a NodeClaim: the deadline, and since when the node is drained."""
    deadline = interruption.deadline
    annotations = {} if deadline is None else {names.TERMINATION_TIMESTAMP: deadline.isoformat()}
    metadata = ObjectMeta(name=node.metadata.name, annotations=annotations, deletion_timestamp=interruption.since)
    return NodeClaim(kind=resources.NODES.kind, api_version=resources.NODES.api_version, metadata=metadata)


def _wait(
    claim: NodeClaim, step: DrainStep, pods: Iterable[Pod], hooks: Iterable[WaitingHook], *, now: datetime
) -> timedelta:
    """How long until the next step: not later than the first heartbeat, deletion or end of a pod."""
    terminating = [pod for pod in pods if is_terminating(pod)]
    latest = earliest((step.requeue_by, last_termination(terminating), *(hook.heartbeat_at for hook in hooks)))
    # An eviction that a budget doesn't allow is tried again ever more seldom.
    reason = WaitReason.PODS if terminating and not step.evict else WaitReason.BLOCKED
    evicted_at = now if step.delete else last_eviction(terminating)
    wait = requeue.requeue_after(claim, reason, latest=latest, now=now, pods_evicted_at=evicted_at)
    return max(wait, timedelta(seconds=1))
