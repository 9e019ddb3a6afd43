"""Terminates the instances of drained NodeClaims with one call, and finalizes NodeClaims whose instance is gone.

An instance that EC2 refuses to terminate, as it is protected, keeps its NodeClaim, which says why; others go.

A node that somebody deleted by hand is recorded in the decision log: nothing else is left of it, as its NodeClaim is
gone, and events are kept for an hour. The row is written when the NodeClaim is finalized, so functions that deleted it
have written their own rows by then. It is only a record: the client of the table writes nothing while DynamoDB fails.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from functions.termination.finalizer import finalize_nodeclaim
from shared.api import nodeclaim
from shared.api.meta import condition, with_condition
from shared.api.standby import standby_state
from shared.base import decision_log
from shared.base.decision_log import DELETED_BY_HAND, TAKEN, UNDONE, DecisionRecord
from shared.base.runtime import KUBERNETES_THREADS, in_threads
from shared.base.struct import with_fields
from shared.cloud_provider import instance_id
from shared.cluster import resources, writes
from shared.cluster.errors import NotFoundError
from shared.disruption.disruption_queue import QUEUE_ANNOTATION
from shared.termination.requeue import WaitReason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from aws_lambda_powertools import Logger
    from mypy_boto3_dynamodb import DynamoDBClient

    from functions.termination.requeue_sender import RequeueSender
    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import CloudProvider
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder

_TERMINATED = "terminated"
_SHUTTING_DOWN = "shutting-down"
_TERMINATING = frozenset({_SHUTTING_DOWN, _TERMINATED})
_WHY = "somebody deleted the node, its NodeClaim or its NodePool"


class InstanceTermination:
    """The drained NodeClaims of one invocation."""

    def __init__(
        self,
        client: Client,
        cloud_provider: CloudProvider,
        requeue_sender: RequeueSender,
        deletions: DeletionRecorder,
        *,
        recorder: Recorder,
        now: Callable[[], datetime],
        logger: Logger,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._cloud_provider = cloud_provider
        self._requeue_sender = requeue_sender
        self._deletions = deletions
        self._now = now
        self._logger = logger
        self._drained: dict[str, tuple[NodeClaim, Node | None]] = {}

    def add(self, claim: NodeClaim, node: Node | None) -> None:
        """Add a NodeClaim whose node, if it has one, is drained or dead."""
        self._drained[claim.name] = (claim, node)

    def terminate_all(self) -> None:
        """Terminate living instances with one call, finalize NodeClaims without one, and requeue the others.

        An instance that the description leaves out is terminated too, because the description may be incomplete.
        Only if TerminateInstances doesn't know it either, it is gone.

        Raises:
            ClientError: EC2 returned an error; nothing was finalized.
        """
        instance_ids = {name: instance_id(claim.status.provider_id) for name, (claim, _) in self._drained.items()}
        known_ids = sorted({i for i in instance_ids.values() if i})
        states = self._states(known_ids)
        living = [i for i in known_ids if states.get(i) not in _TERMINATING]
        refused: Mapping[str, str] = {}
        if living:
            outcome = self._cloud_provider.delete(living)
            living, refused = list(outcome.known), outcome.refused
            states |= dict.fromkeys(living, _SHUTTING_DOWN)
            self._logger.info("Terminated instances", extra={"instances": living, "nodeclaims": sorted(instance_ids)})

        def write(drained: tuple[NodeClaim, Node | None]) -> None:
            claim, node = drained
            id_ = instance_ids[claim.name]
            if id_ in living and id_ not in refused:
                self._write_instance_terminating(claim, status=True, reason="InstanceTerminating")
            self._finish(claim, node, is_gone=states.get(id_, _TERMINATED) == _TERMINATED, refused=refused.get(id_, ""))

        in_threads(write, self._drained.values(), threads=KUBERNETES_THREADS)
        self._drained.clear()

    def _finish(self, claim: NodeClaim, node: Node | None, *, is_gone: bool, refused: str) -> None:
        """Finalize the NodeClaim if its instance ``is_gone``, or requeue it; ``refused`` is why EC2 keeps it."""
        if refused:
            self._report_refused(claim, instance_id(claim.status.provider_id), refused)
            self._requeue_sender.requeue(claim, WaitReason.REFUSED)
            return
        if is_gone:
            self._deletions.record(claim)
        if not is_gone or not finalize_nodeclaim(self._client, claim, node):
            self._requeue_sender.requeue(claim, WaitReason.INSTANCE)

    def _states(self, instance_ids: list[str]) -> dict[str, str]:
        """The states of the instances that EC2 knows."""
        return {i.id: i.state for i in self._cloud_provider.get(instance_ids)} if instance_ids else {}

    def _report_refused(self, claim: NodeClaim, instance: str, why: str) -> None:
        """Write that EC2 refuses to terminate the instance, with an event when that begins."""
        message = f"EC2 refuses to terminate instance {instance}: {why}"
        before = condition(claim.status.conditions, nodeclaim.INSTANCE_TERMINATING)
        if before is None or before.message != message:
            self._recorder.record(claim.ref, "Warning", "FailedTerminating", message)
            self._logger.error("EC2 refuses to terminate an instance", extra={"nodeclaim": claim.name, "why": why})
        self._write_instance_terminating(claim, status=False, reason="TerminationRefused", message=message)

    def _write_instance_terminating(self, claim: NodeClaim, *, status: bool, reason: str, message: str = "") -> None:
        now = self._now()

        def change(current: NodeClaim) -> NodeClaim:
            conditions = with_condition(
                current.status.conditions,
                nodeclaim.INSTANCE_TERMINATING,
                status=status,
                reason=reason,
                message=message,
                now=now,
                generation=current.metadata.generation,
            )
            return with_fields(current, status=with_fields(current.status, conditions=conditions))

        with contextlib.suppress(NotFoundError):
            writes.update_status(self._client, resources.NODE_CLAIMS, claim, change)


class DeletionRecorder:
    """Writes the rows; DynamoDB is only called for NodeClaims that no disruption command has removed."""

    def __init__(self, table: str, *, dynamodb: Callable[[], DynamoDBClient]) -> None:
        self._table = table
        self._dynamodb = dynamodb

    def record(self, claim: NodeClaim) -> None:
        """Write a row about the NodeClaim's node if no function of Tenon's has decided to remove it."""
        deleted = claim.metadata.deletion_timestamp
        is_node = bool(claim.status.provider_id) and not standby_state(claim)
        if deleted is None or not is_node or QUEUE_ANNOTATION in claim.metadata.annotations:
            return
        node = claim.node_or_own_name
        if not self._is_explained(node, claim):
            entry = DecisionRecord(node=node, at=deleted, outcome=TAKEN, reason=DELETED_BY_HAND, why=_WHY, nodes=1)
            decision_log.put(self._dynamodb(), self._table, entry)

    def _is_explained(self, node: str, claim: NodeClaim) -> bool:
        """Whether the last decision about this very node was to remove it; node names are used again."""
        created = claim.metadata.creation_timestamp
        for decision in decision_log.latest(self._dynamodb(), self._table, node):
            if created is not None and decision.at < created:
                return False
            if decision.outcome in {TAKEN, UNDONE}:
                return decision.outcome == TAKEN
        return False
