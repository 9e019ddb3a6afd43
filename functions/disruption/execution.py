"""Carrying actions out, step by step: marked, tainted, looked at once more, replaced, and only then given up.

Under the lease. A run that dies leaves marks, and the next one goes on or puts everything back
(:mod:`shared.disruption.disruption_queue`).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shared import aws, hints, runtime
from shared.api import taints
from shared.api.kubernetes import Node
from shared.api.pods import is_reschedulable
from shared.cluster import resources, writes
from shared.cluster.errors import NotFoundError
from shared.cluster.snapshot_reader import list_pods_on_node
from shared.disruption import disruption_queue
from shared.disruption.cluster_state import workload_pods
from shared.disruption.command import EMPTY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from functions.disruption.decision_records import Decisions
    from functions.disruption.settings import DisruptionSettings
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.disruption.command import Command, Removal
    from shared.disruption.disruption_queue import QueueEntry, Rollback
    from shared.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class Carrying:
    """The tools of one run."""

    client: Client
    recorder: Recorder
    settings: DisruptionSettings
    decisions: Decisions

    def begin(
        self, action: Command, replacements: Sequence[NodeClaim], snapshot: Snapshot, *, id_: str, now: datetime
    ) -> tuple[NodeClaim, ...] | None:
        """Carry out an action as far as it goes now; the replacements as written, or None if it was put back.

        An action without replacements is done after that.
        """
        claims = {c.name: c for c in snapshot.node_claims}
        mark = disruption_queue.QueueEntry(
            id=id_,
            reason=action.reason,
            since=now,
            message=action.message,
            replacements=[c.name for c in replacements],
        )
        leaving = [claims[r.claim] for r in action.removals]
        for claim in leaving:
            self._mark(claim, mark, now)
        if not action.forced:
            for removal in action.removals:
                if why := self._used_again(removal):
                    self._put_back(leaving, reason=action.reason, why=why, now=now)
                    return None
        written = tuple(writes.create(self.client, resources.NODE_CLAIMS, c) for c in replacements)
        self.decisions.took(action, id_=id_, now=now)
        for claim in leaving if not replacements else ():
            self._give_up(claim, mark)
        return written

    def go_on(self, snapshot: Snapshot, *, now: datetime) -> tuple[int, bool]:
        """Finish what is replaced, put back what can't be; how many went, and whether anything is still waited for."""
        found = disruption_queue.queue_status(snapshot.node_claims, now=now)
        claims = {c.name: c for c in snapshot.node_claims}
        used = {p.spec.node_name for p in workload_pods(snapshot.pods)}
        for undone in found.rollbacks:
            self._undo(undone, claims, used, now)
        went = sum(self._give_up(claim, mark) for claim, mark in found.completed)
        return went, found.waiting

    def _mark(self, claim: NodeClaim, mark: QueueEntry, now: datetime) -> None:
        with contextlib.suppress(NotFoundError):
            marked = writes.update(
                self.client, resources.NODE_CLAIMS, claim, partial(disruption_queue.with_queue_entry, entry=mark)
            )
            writes.update_status(
                self.client,
                resources.NODE_CLAIMS,
                marked,
                partial(disruption_queue.with_disruption_condition, entry=mark, now=now),
            )

    def _used_again(self, removal: Removal) -> str:
        """Taint the node, and say what has come to it since it was looked at; empty when nothing has."""
        try:
            node = writes.read(self.client, resources.NODES, removal.node, Node)
            writes.update(self.client, resources.NODES, node, _tainted)
        except NotFoundError:
            return f"node {removal.node} is gone"
        there = workload_pods(list_pods_on_node(self.client, removal.node).objects)
        came = sorted({p.key for p in there if removal.reason == EMPTY or is_reschedulable(p)} - set(removal.pods))
        return f"pod {came[0]} has come to node {removal.node}" if came else ""

    def _put_back(self, claims: Sequence[NodeClaim], *, reason: str, why: str, now: datetime) -> None:
        """Take the taints, conditions and marks off, the marks last: without them nobody would know."""
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
        self.decisions.gave_up([c.status.node_name or c.name for c in claims], reason=reason, why=why, now=now)

    def _undo(self, undone: Rollback, claims: Mapping[str, NodeClaim], used: set[str], now: datetime) -> None:
        for name in undone.replacements:
            claim = claims.get(name)
            if claim is not None and claim.metadata.deletion_timestamp is None and claim.status.node_name not in used:
                writes.delete(self.client, resources.NODE_CLAIMS, claim)
        mark = disruption_queue.queue_entry(undone.claim)
        reason = mark.reason if mark is not None else "Unknown"
        self.recorder.record(undone.claim.ref, "Warning", "DisruptionUndone", f"{reason}: {undone.why}")
        self._put_back([undone.claim], reason=reason, why=undone.why, now=now)

    def _give_up(self, claim: NodeClaim, mark: QueueEntry) -> bool:
        """Delete a claim and have its drain begin; False when it was gone."""
        if not writes.delete(self.client, resources.NODE_CLAIMS, claim):
            return False
        self.recorder.record(claim.ref, "Normal", "DisruptionTerminating", f"{mark.reason}: {mark.message}")
        now = runtime.current().now()
        for body in hints.message_bodies(hints.DRAIN, cluster=self.settings.cluster_name, keys=[claim.name], time=now):
            aws.sqs().send_message(QueueUrl=self.settings.termination_queue_url, MessageBody=body)
        return True


def _tainted(node: Node) -> Node:
    return replace(node, spec=replace(node.spec, taints=taints.with_disrupted(node.spec.taints)))


def _untainted(node: Node) -> Node:
    return replace(node, spec=replace(node.spec, taints=taints.without_disrupted(node.spec.taints)))
