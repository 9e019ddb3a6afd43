"""Records decisions: a row in the decision log, a log line, and an event for users.

A candidate that is blocked each minute for the same reason is recorded once an hour by a warm process. A cold process
records it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.meta import EventReason
from shared.base import decision_log
from shared.base.decision_log import REPEAT_INTERVAL, DecisionRecord
from shared.disruption.command import UNDERUTILIZED, WARNING_INTERVAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from aws_lambda_powertools import Logger
    from mypy_boto3_dynamodb import DynamoDBClient

    from shared.api.meta import ObjectRef
    from shared.api.nodeclaim import NodeClaim
    from shared.base.runtime import Runtime
    from shared.cluster.events import Recorder
    from shared.disruption.command import BlockedCandidate, Command, DisruptionWarning
    from shared.snapshot import Snapshot

_MAX_RECORDED = 50
"""How many blocked candidates one run records; later runs record the others."""
_MAX_REMEMBERED = 10_000


class DecisionRecorder:
    """Records decisions; a warm process remembers which blocked candidates it has recorded."""

    def __init__(
        self,
        table: str,
        recorder: Recorder,
        *,
        dynamodb: Callable[[], DynamoDBClient],
        runtime: Runtime,
        logger: Logger,
    ) -> None:
        self._table = table
        self._recorder = recorder
        self._dynamodb = dynamodb
        self._logger = logger
        self._recorded: dict[tuple[str, str, str], datetime] = runtime.cached("disruption:refused", dict)

    def record_command(self, command: Command, *, command_id: str, now: datetime) -> None:
        """Record that a command was started."""
        self._logger.info(
            "Disrupting nodes",
            extra={
                "decision": command_id,
                "reason": command.reason,
                "why": command.message,
                "nodes": command.nodes,
                "replacements": len(command.replacements),
                "savings": round(command.savings, 6),
                "pods": command.pod_count,
            },
        )
        for removal in command.removals:
            self._put(
                DecisionRecord(
                    node=removal.node,
                    at=now,
                    outcome=decision_log.TAKEN,
                    reason=removal.reason,
                    why=removal.message,
                    savings=command.savings,
                    pods=command.pod_count,
                    nodes=len(command.removals),
                    replacements=len(command.replacements),
                )
            )

    def record_rollback(self, nodes: Iterable[str], *, reason: str, why: str, now: datetime) -> None:
        """Record that a command was rolled back."""
        for node in nodes:
            self._logger.info("Rolled back a disruption", extra={"node": node, "reason": reason, "why": why})
            self._put(DecisionRecord(node=node, at=now, outcome=decision_log.UNDONE, reason=reason, why=why))

    def record_surplus(self, replacement: NodeClaim, *, reason: str, why: str, now: datetime) -> None:
        """Record that a replacement of a command that was rolled back is removed, if it has an instance."""
        if replacement.status.provider_id:
            node = replacement.node_or_own_name
            message = f"a replacement that is no longer needed: {why}"
            self._put(
                DecisionRecord(node=node, at=now, outcome=decision_log.TAKEN, reason=reason, why=message, nodes=1)
            )

    def record_all_blocked(self, candidates: Iterable[BlockedCandidate], snapshot: Snapshot, *, now: datetime) -> None:
        """Record blocked candidates, up to :data:`_MAX_RECORDED`."""
        nodes = {n.metadata.name: n for n in snapshot.nodes}
        recorded = 0
        for candidate in candidates:
            if recorded >= _MAX_RECORDED:
                break
            node = nodes.get(candidate.node)
            recorded += self.record_blocked(candidate, node.ref if node is not None else None, now=now)

    def record_warnings(self, warnings: Iterable[DisruptionWarning]) -> None:
        """Record events that methods want users to see."""
        for warning in warnings:
            self._recorder.record(
                warning.ref, "Warning", warning.reason, warning.message, repeat_after=WARNING_INTERVAL
            )

    def record_blocked(self, candidate: BlockedCandidate, node: ObjectRef | None, *, now: datetime) -> bool:
        """Record a blocked candidate; False when the same was recorded within the hour."""
        # Without a blocking object the message has figures that change each minute.
        key = candidate.node, candidate.reason, candidate.message if candidate.blocker.by else ""
        last = self._recorded.get(key)
        if last is not None and now - last < REPEAT_INTERVAL:
            return False
        why, by = candidate.blocker.message, candidate.blocker.by
        if node is not None:
            event = EventReason("Unconsolidatable" if candidate.reason == UNDERUTILIZED else "DisruptionBlocked")
            self._recorder.record(node, "Normal", event, f"{candidate.reason}: {why}")
        self._logger.info(
            "Disruption is blocked",
            extra={
                "node": candidate.node,
                "reason": candidate.reason,
                "why": why,
                "by": by,
                "savings": candidate.savings,
            },
        )
        self._put(
            DecisionRecord(
                node=candidate.node,
                at=now,
                outcome=decision_log.REFUSED,
                reason=candidate.reason,
                why=why,
                blocked_by=by,
                savings=candidate.savings,
                pods=candidate.pods,
                nodes=1,
            )
        )
        if len(self._recorded) >= _MAX_REMEMBERED:
            self._recorded.clear()
        self._recorded[key] = now
        return True

    def _put(self, entry: DecisionRecord) -> None:
        decision_log.put(self._dynamodb(), self._table, entry)
