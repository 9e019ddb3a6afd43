"""Termination of NodeClaims that are being deleted: their nodes are drained, their instances terminated.

All state is in the cluster, so an invocation may die at any point and the next one continues. The NodeClaims of one
invocation share the call that terminates their instances. Karpenter: node/termination and nodeclaim/termination.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from functions.termination import step_stamp
from functions.termination.cluster_cache import ClusterCache
from functions.termination.finalizer import finalize_node
from functions.termination.instance_termination import DeletionRecorder, InstanceTermination
from functions.termination.requeue_sender import RequeueSender
from functions.termination.room_maker import RoomMaker
from functions.termination.terminator import Terminator
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.kubernetes import Node
from shared.api.meta import ObjectMeta, condition, is_true
from shared.api.nodeclaim import NodeClaim, NodeClaimStatus
from shared.api.pods import is_terminating
from shared.api.standby import is_held
from shared.base.struct import with_fields
from shared.cloud_provider import instance_id
from shared.cluster import resources, writes
from shared.cluster.errors import ApiError, ConflictError, NotFoundError
from shared.cluster.node_class_groups import is_foreign
from shared.cluster.watched_objects import list_pods_on_node
from shared.termination import garbage, requeue
from shared.termination.drain import (
    drain_step,
    last_eviction,
    last_termination,
    termination_deadline,
    with_termination_timestamp,
)
from shared.termination.eviction import Evictor
from shared.termination.requeue import WaitReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from aws_lambda_powertools import Logger
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

    from functions.termination.settings import TerminationSettings
    from shared.cloud_provider import CloudProvider, Instance
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder

_NODE = resources.NODES
_ATTEMPTS = 3
"""How often a drain's step is computed again, because another writer has changed the NodeClaim meanwhile."""


class TerminationController:
    """One invocation, for any number of NodeClaims, nodes and instances.

    ``requeues`` is how many messages its longest chain of reconciles has had. After ``until`` no drain's step begins.
    Each ``reconcile`` method returns False if its message must be redelivered.
    """

    def __init__(
        self,
        settings: TerminationSettings,
        *,
        client: Client,
        recorder: Recorder,
        cloud_provider: CloudProvider,
        sqs: Callable[[], SQSClient],
        dynamodb: Callable[[], DynamoDBClient],
        now: Callable[[], datetime],
        until: datetime,
        logger: Logger,
        requeues: int = 0,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._cloud_provider = cloud_provider
        self._now = now
        self._until = until
        self._logger = logger
        self._requeues = requeues
        self._cache = ClusterCache(client, cloud_provider)
        evictor = Evictor(client=client, recorder=recorder, now=now)
        self._terminator = Terminator(client=client, recorder=recorder, evictor=evictor, now=now, logger=logger)
        self._room_maker = RoomMaker(client, self._cache, evictor, settings=settings, sqs=sqs, now=now, logger=logger)
        self._requeue_sender = RequeueSender(client, settings, sqs=sqs, now=now, requeues=requeues, logger=logger)
        self._instance_termination = InstanceTermination(
            client,
            cloud_provider,
            self._requeue_sender,
            DeletionRecorder(settings.table_name, dynamodb=dynamodb),
            recorder=recorder,
            now=now,
            logger=logger,
        )
        self._unblocked: set[str] = set()

    def reconcile_nodeclaim(self, claim_name: str) -> bool:
        """Continue a NodeClaim's drain if it is being deleted and its requeue time has come; else one request."""
        return self._reconcile_nodeclaim(claim_name, is_unblocked=False)

    def reconcile_unblocked(self, claim_name: str) -> bool:
        """Continue a drain that has begun, due or not, because what blocked it has changed. Once an invocation."""
        if claim_name in self._unblocked:
            return True
        self._unblocked.add(claim_name)
        return self._reconcile_nodeclaim(claim_name, is_unblocked=True)

    def reconcile_node(self, node_name: str) -> bool:
        """Delete the NodeClaim of a node that is being deleted, and drain; a node without NodeClaim is garbage."""
        try:
            node = self._cache.as_managed(writes.read(self._client, resources.NODES, node_name, Node))
        except NotFoundError:
            return True
        claim = self._cache.nodeclaim_of(node)
        if claim is None:
            return self._reconcile_node_without_nodeclaim(node)
        if node.metadata.deletion_timestamp is None:
            return True
        if claim.metadata.deletion_timestamp is None:
            writes.delete(self._client, resources.NODE_CLAIMS, claim)
        return self.reconcile_nodeclaim(claim.name)

    def make_room(self, node_name: str) -> bool:
        """Evict pods of a full node for those that can only run there."""
        return self._room_maker.make_room(node_name, until=self._until)

    def terminate_instances_without_nodeclaim(self, instance_ids: Iterable[str]) -> None:
        """Terminate those of the instances that still have no NodeClaim: the message may be old."""
        candidates = set(instance_ids)
        without_nodeclaim = garbage.instances_without_nodeclaim(
            self._cache.instances_without_undecoded_nodeclaims(),
            self._cache.nodeclaims(),
            self._cache.nodes(),
            now=self._now(),
        )
        confirmed = [i for i in without_nodeclaim if i in candidates and not self._cache.has_nodeclaim(i)]
        if confirmed:
            self._logger.warning("Terminating instances without a NodeClaim", extra={"instances": confirmed})
            refused = self._cloud_provider.delete(confirmed).refused
            for instance, why in sorted(refused.items()):
                self._logger.error("EC2 refuses to terminate an instance", extra={"instance": instance, "why": why})

    def finish(self) -> None:
        """Terminate the instances of all drained NodeClaims with one call, and send the requeues of drains and nodes.

        Raises:
            ClientError: EC2 returned an error; nothing was finalized, and each NodeClaim is due as before.
        """
        try:
            self._instance_termination.terminate_all()
        finally:
            self._requeue_sender.send()
            self._room_maker.send(requeues=self._requeues)

    def _reconcile_nodeclaim(self, claim_name: str, *, is_unblocked: bool) -> bool:
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(ConflictError):
                return self._try_reconcile_nodeclaim(claim_name, is_unblocked=is_unblocked)
        return False

    def _try_reconcile_nodeclaim(self, claim_name: str, *, is_unblocked: bool) -> bool:
        now = self._now()
        try:
            claim = writes.read(self._client, resources.NODE_CLAIMS, claim_name, NodeClaim)
        except NotFoundError:
            return True
        if claim.metadata.deletion_timestamp is None or is_foreign(claim):
            return True
        has_begun = condition(claim.status.conditions, nodeclaim.DRAINED) is not None
        if not (requeue.is_due(claim, now=now) or (is_unblocked and has_begun)):
            return True
        if step_stamp.is_running(claim, now=now) or now >= self._until:
            return False
        try:
            claim = writes.update(self._client, resources.NODE_CLAIMS, claim, _with_termination_timestamp)
            self._drain(claim, self._cache.node_of(claim))
        except NotFoundError:
            return True
        return True

    def _drain(self, claim: NodeClaim, node: Node | None) -> None:
        """Carry out one step of the drain; a NodeClaim without a node to drain goes to instance termination.

        So does a node that is kept on standby: it has no pods but DaemonSets', and its kubelet may not run.

        Raises:
            ConflictError: another writer has changed the NodeClaim since it was read.
            NotFoundError: the NodeClaim or the node is gone.
        """
        if node is None or is_held(claim) or self._is_instance_gone(claim, node):
            self._instance_termination.add(claim, node)
            return
        node = self._terminator.taint(node)
        pods = list_pods_on_node(self._client, node.metadata.name).objects
        step = drain_step(claim, pods, self._cache.attachments(node), self._cache.volumes(node), now=self._now())
        if step.evict or step.delete:
            claim = step_stamp.write(self._client, claim, now=self._now())
        try:
            wait_reason = self._terminator.carry_out(claim, node, step)
        except ApiError:
            step_stamp.remove(self._client, claim)
            raise
        if step.terminate:
            self._instance_termination.add(step_stamp.remove(self._client, claim), node)
            return
        terminating = [p for p in pods if is_terminating(p)]
        evicted_at = self._now() if wait_reason is WaitReason.PODS else last_eviction(terminating)
        ends = [end for end in (step.requeue_by, last_termination(terminating)) if end is not None]
        self._requeue_sender.requeue(
            claim,
            WaitReason.PODS if terminating else wait_reason,
            latest=min(ends, default=None),
            pods_evicted_at=evicted_at,
        )

    def _is_instance_gone(self, claim: NodeClaim, node: Node) -> bool:
        """Whether the node's instance is gone, so that its pods can be neither evicted nor waited for."""
        if is_true(node.status.conditions, "Ready"):
            return False
        instance = self._describe(claim.status.provider_id)
        if not garbage.is_node_lost(node, instance, now=self._now()):
            return False
        known_id = instance_id(claim.status.provider_id)
        message = f"instance {known_id} is gone; removing node {node.metadata.name} without draining it"
        self._recorder.record(node.ref, "Warning", "InstanceGone", message)
        return True

    def _describe(self, provider_id: str) -> Instance | None:
        """The instance as EC2 describes it by id; None if EC2 doesn't know it."""
        known_id = instance_id(provider_id)
        return next(iter(self._cloud_provider.get([known_id])), None) if known_id else None

    def _reconcile_node_without_nodeclaim(self, node: Node) -> bool:
        """Remove a node whose instance is gone, and drain one whose instance lives; other nodes are not Tenon's."""
        now, cache = self._now(), self._cache
        claim = _substitute_nodeclaim(node, now=now)
        if garbage.nodes_without_nodeclaim_and_instance(
            [node], cache.nodeclaims(), cache.instances(), now=now
        ) and garbage.is_node_lost(node, self._describe(node.spec.provider_id), now=now):
            message = "removing the node: its NodeClaim and its instance are gone"
            self._recorder.record(node.ref, "Warning", "NodeGarbageCollected", message)
            self._logger.info("Removing a node", extra={"node": node.metadata.name, "why": message})
            finalize_node(self._client, node)
        elif requeue.is_due(claim, now=now):
            if garbage.is_being_removed(node) and self._is_terminating(claim):
                self._instance_termination.add(claim, node)
            elif garbage.nodes_without_nodeclaim(
                [node], cache.nodeclaims(), cache.instances_without_undecoded_nodeclaims(), now=now
            ):
                return self._drain_without_nodeclaim(claim, node)
        return True

    def _drain_without_nodeclaim(self, claim: NodeClaim, node: Node) -> bool:
        """Carry out one step of the drain of a node with that substitute; False if it must be tried again."""
        now = self._now()
        if step_stamp.is_running(claim, now=now) or now >= self._until:
            return False
        self._recorder.record(
            node.ref, "Warning", "NodeClaimGone", "draining and removing the node: its NodeClaim is gone"
        )
        try:
            if node.metadata.deletion_timestamp is None:
                node = writes.update(self._client, resources.NODES, node, _with_finalizer)
                writes.delete(self._client, resources.NODES, node)
            node = self._terminator.taint(node)
            self._drain(_substitute_nodeclaim(node, now=now), node)
        except NotFoundError:
            return True
        except ConflictError:
            return False
        return True

    def _is_terminating(self, claim: NodeClaim) -> bool:
        """Whether EC2 says that the instance is shutting down or terminated; not, if it doesn't know it."""
        instance = self._describe(claim.status.provider_id)
        return instance is not None and not garbage.is_alive(instance)


def _with_termination_timestamp(claim: NodeClaim) -> NodeClaim:
    """The NodeClaim with the annotation that says when its terminationGracePeriod ends."""
    deadline = termination_deadline(claim)
    if deadline is None or names.TERMINATION_TIMESTAMP in claim.metadata.annotations:
        return claim
    return with_termination_timestamp(claim, deadline)


def _with_finalizer(node: Node) -> Node:
    if names.TERMINATION_FINALIZER in node.metadata.finalizers:
        return node
    finalizers = [*node.metadata.finalizers, names.TERMINATION_FINALIZER]
    return with_fields(node, metadata=with_fields(node.metadata, finalizers=finalizers))


def _substitute_nodeclaim(node: Node, *, now: datetime) -> NodeClaim:
    """A NodeClaim of kind Node in place of the node's, which is gone.

    Its requeue time and its step's stamp are the node's annotations. Writes to its status find nothing.
    """
    return NodeClaim(
        kind=_NODE.kind,
        api_version=_NODE.api_version,
        metadata=ObjectMeta(
            name=node.metadata.name,
            resource_version=node.metadata.resource_version,
            annotations=node.metadata.annotations,
            deletion_timestamp=node.metadata.deletion_timestamp or now,
        ),
        status=NodeClaimStatus(provider_id=node.spec.provider_id, node_name=node.metadata.name),
    )
