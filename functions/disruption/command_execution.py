"""Executes disruption commands: queue, taint, check again, create the replacements, and delete the claims at the end.

The lease is held. A run that dies leaves its claims in the queue, and the next run continues or rolls them back
(:mod:`shared.disruption.disruption_queue`).
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from shared.api import labels as names
from shared.api import taints
from shared.api.kubernetes import Node
from shared.api.pods import is_reschedulable
from shared.base import hints, queues
from shared.base.struct import MutableStruct, Struct, with_fields
from shared.cluster import resources, writes
from shared.cluster.errors import NotFoundError
from shared.cluster.watched_objects import list_pods_on_node
from shared.disruption import disruption_queue
from shared.disruption.command import EMPTY, REBOOT, UNHEALTHY
from shared.disruption.disruption_queue import QueueEntry
from shared.disruption.disruption_state import workload_pods
from shared.disruption.methods import withdrawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from aws_lambda_powertools import Logger
    from mypy_boto3_sqs import SQSClient

    from functions.disruption.decision_records import DecisionRecorder
    from functions.disruption.replacements import Replacements
    from functions.disruption.settings import DisruptionSettings
    from functions.disruption.state_reader import ClusterState
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.disruption.command import Command, Removal
    from shared.disruption.disruption_queue import Rollback
    from shared.disruption.disruption_state import DisruptionState


class DisruptionReport(MutableStruct, kw_only=True):
    """What a reconcile did, for metrics. ``saved`` is USD per hour of all commands that were started."""

    removed: int = 0
    repaired: int = 0
    """Of these, how many were unhealthy."""
    rebooted: int = 0
    """Nodes whose reboot was requested."""
    replacements: int = 0
    saved: float = 0.0


class CommandExecutor(Struct, kw_only=True):
    """Executes the commands of one reconcile; each takes the next of ``command_ids``."""

    settings: DisruptionSettings
    client: Client
    recorder: Recorder
    replacements: Replacements
    decisions: DecisionRecorder
    sqs: Callable[[], SQSClient]
    command_ids: Iterator[str]
    now: Callable[[], datetime]
    logger: Logger
    report: DisruptionReport = msgspec.field(default_factory=DisruptionReport)
    deleted: list[str] = msgspec.field(default_factory=list)
    """The claims whose drains are still to be started."""

    def start(self, command: Command, state: DisruptionState) -> tuple[NodeClaim, ...] | None:
        """Start a command; returns its replacements as written, None if it wasn't started or was rolled back."""
        command_id = next(self.command_ids)
        if command.repair_action == REBOOT:
            self._request_reboots(command, state, command_id=command_id)
            return None
        if not (command.savings or command.replacements or command.terminate_first):
            command = with_fields(command, savings=self.replacements.price_of_removals(command, state.snapshot))
        claims = self.replacements.node_claims(command, state.snapshot, command_id=command_id, now=state.now)
        try:
            written = self._execute(command, claims, state, command_id=command_id)
        except NotFoundError as error:
            self.logger.warning("Couldn't start a command", extra={"nodes": command.nodes, "why": str(error)})
            return None
        if written is not None:
            self.report.replacements += len(written)
            self.report.removed += 0 if written else len(command.removals)
            self.report.saved += command.savings
        return written

    def _request_reboots(self, command: Command, state: DisruptionState, *, command_id: str) -> None:
        """Leave the nodes to the lifecycle function, which reboots them."""
        from functions.disruption import reboot_requests  # noqa: PLC0415 - optional, and rare

        claims_by_name = {c.name: c for c in state.snapshot.node_claims}
        for removal in command.removals:
            claim = claims_by_name[removal.claim]
            reboot_requests.request_reboot(self.client, claim, command.grace_period, why=removal.message, now=state.now)
            self.report.rebooted += 1
        self.decisions.record_command(command, command_id=command_id, now=state.now)

    def _execute(
        self, command: Command, replacements: Sequence[NodeClaim], state: DisruptionState, *, command_id: str
    ) -> tuple[NodeClaim, ...] | None:
        """Queue a command and create its replacements, or delete its claims at once if there are none.

        Returns the replacements as written, or None if the command was rolled back because a pod came to a node.
        """
        now = state.now
        claims_by_name = {c.name: c for c in state.snapshot.node_claims}
        entry = QueueEntry(
            id=command_id,
            reason=command.reason,
            since=now,
            message=command.message,
            replacements=[c.name for c in replacements],
            terminate_first=command.terminate_first,
        )
        removed = [claims_by_name[r.claim] for r in command.removals]
        for claim in removed:
            self._queue(claim, entry, command.grace_period, now)
        if not command.forced:
            for removal in command.removals:
                if why := self._taint_and_check(removal):
                    self._restore(removed, reason=command.reason, why=why, now=now)
                    return None
        written = tuple(writes.create(self.client, resources.NODE_CLAIMS, c) for c in replacements)
        self.decisions.record_command(command, command_id=command_id, now=now)
        for claim in removed if not replacements else ():
            self._delete(claim, entry)
        return written

    def remove_standbys(self, cluster: ClusterState) -> None:
        """Delete the NodeClaims of standby nodes that are surplus or outdated."""
        if not cluster.has_standbys:
            return
        # Imported here: few clusters have standby nodes.
        from shared.standby.removal import removals  # noqa: PLC0415

        for removal in removals(cluster.state, cluster.everything):
            claim = removal.claim
            if _is_kept(claim, cluster.state):
                continue
            self.recorder.record(claim.ref, "Normal", "StandbyRemoved", removal.message)
            self.logger.info("Removing a standby node", extra={"nodeclaim": claim.name, "why": removal.message})
            writes.delete(self.client, resources.NODE_CLAIMS, claim)

    def process_queue(self, state: DisruptionState) -> tuple[int, datetime | None]:
        """Delete claims whose replacements are initialized, and roll back failed commands.

        Returns how many claims were deleted, and since when others wait for replacements (None: none does). Where a
        NodePool is paused or a zone shifted away, nothing is deleted, neither now nor by a rollback.
        """
        snapshot, now = state.snapshot, state.now
        status = disruption_queue.queue_status(snapshot.node_claims, now=now, withdrawn=withdrawn(state))
        claims_by_name = {c.name: c for c in snapshot.node_claims}
        used_nodes = {p.spec.node_name for p in workload_pods(snapshot.pods)}
        for rollback in status.rollbacks:
            if not (rollback.surplus and _is_kept(rollback.claim, state)):
                self._roll_back(rollback, claims_by_name, used_nodes, now)
        completed = ((claim, entry) for claim, entry in status.completed if not _is_kept(claim, state))
        deleted = sum(self._delete(claim, entry) for claim, entry in completed)
        self.report.removed += deleted
        return deleted, status.waiting_since

    def _queue(self, claim: NodeClaim, entry: QueueEntry, grace_period: timedelta | None, now: datetime) -> None:
        with_entry = partial(disruption_queue.with_queue_entry, entry=entry, grace_period=grace_period)
        with contextlib.suppress(NotFoundError):
            annotated = writes.update(self.client, resources.NODE_CLAIMS, claim, with_entry)
            writes.update_status(
                self.client,
                resources.NODE_CLAIMS,
                annotated,
                partial(disruption_queue.with_disruption_condition, entry=entry, now=now),
            )

    def _taint_and_check(self, removal: Removal) -> str:
        """Taint the node; returns which pod has come to it since the snapshot, empty when none has."""
        try:
            node = writes.read(self.client, resources.NODES, removal.node, Node)
            writes.update(self.client, resources.NODES, node, _tainted)
        except NotFoundError:
            return f"node {removal.node} no longer exists"
        pods = workload_pods(list_pods_on_node(self.client, removal.node).objects)
        relevant = {p.key for p in pods if removal.reason == EMPTY or is_reschedulable(p)}
        new_pods = sorted(relevant - set(removal.pods))
        return f"pod {new_pods[0]} was scheduled on node {removal.node}" if new_pods else ""

    def _restore(self, claims: Sequence[NodeClaim], *, reason: str, why: str, now: datetime) -> None:
        """Remove the taints, conditions and queue entries; the entries last, because they keep the rollback going."""
        for claim in claims:
            with contextlib.suppress(NotFoundError):
                if claim.status.node_name:
                    node = writes.read(self.client, resources.NODES, claim.status.node_name, Node)
                    writes.update(self.client, resources.NODES, node, _untainted)
            with contextlib.suppress(NotFoundError):
                current = writes.read(self.client, resources.NODE_CLAIMS, claim.name, type(claim))
                current = writes.update_status(
                    self.client, resources.NODE_CLAIMS, current, disruption_queue.without_disruption_condition
                )
                writes.update(self.client, resources.NODE_CLAIMS, current, disruption_queue.without_queue_entry)
        nodes = [c.node_or_own_name for c in claims]
        self.decisions.record_rollback(nodes, reason=reason, why=why, now=now)

    def _roll_back(
        self, rollback: Rollback, claims_by_name: Mapping[str, NodeClaim], used_nodes: set[str], now: datetime
    ) -> None:
        """Delete the surplus replacements that no pod uses, and take the claim out of the queue."""
        entry = disruption_queue.queue_entry(rollback.claim)
        reason = entry.reason if entry is not None else "Unknown"
        for name in rollback.surplus:
            claim = claims_by_name.get(name)
            is_live = claim is not None and claim.metadata.deletion_timestamp is None
            if claim is not None and is_live and claim.status.node_name not in used_nodes:
                writes.delete(self.client, resources.NODE_CLAIMS, claim)
                self.decisions.record_surplus(claim, reason=reason, why=rollback.why, now=now)
        self.recorder.record(rollback.claim.ref, "Warning", "DisruptionUndone", f"{reason}: {rollback.why}")
        self._restore([rollback.claim], reason=reason, why=rollback.why, now=now)

    def _delete(self, claim: NodeClaim, entry: QueueEntry) -> bool:
        """Delete a claim; False when it no longer exists."""
        if not writes.delete(self.client, resources.NODE_CLAIMS, claim):
            return False
        self.deleted.append(claim.name)
        self.report.repaired += entry.reason == UNHEALTHY
        self.recorder.record(claim.ref, "Normal", "DisruptionTerminating", f"{entry.reason}: {entry.message}")
        return True

    def start_drains(self) -> None:
        """Start the drains of the claims that were deleted since this was called last."""
        cluster, deleted = self.settings.cluster_name, self.deleted[:]
        self.deleted.clear()
        bodies = hints.message_bodies(hints.DRAIN, cluster=cluster, keys=deleted, time=self.now())
        queues.try_send(self.sqs, self.settings.termination_queue_url, bodies)


def _tainted(node: Node) -> Node:
    return with_fields(node, spec=with_fields(node.spec, taints=taints.with_disrupted(node.spec.taints)))


def _untainted(node: Node) -> Node:
    return with_fields(node, spec=with_fields(node.spec, taints=taints.without_disrupted(node.spec.taints)))


def _is_kept(claim: NodeClaim, state: DisruptionState) -> bool:
    """Whether the claim's NodePool is paused, or traffic is shifted away from its zone."""
    labels = claim.metadata.labels
    return labels.get(names.NODEPOOL) in state.paused or labels.get(names.ZONE) in state.snapshot.shifted_zones
