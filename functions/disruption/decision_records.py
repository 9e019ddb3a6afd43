"""Telling what was decided: a row in the decision log, a log line, and an event where somebody should know.

What is refused each minute for the same reason is told once an hour, by a warm process; a cold one tells it again.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared import aws, decision_log, runtime
from shared.api.meta import EventReason
from shared.decision_log import DecisionRecord
from shared.disruption.command import UNDERUTILIZED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aws_lambda_powertools import Logger

    from shared.api.meta import ObjectRef
    from shared.cluster.events import Recorder
    from shared.disruption.command import BlockedCandidate, Command

AGAIN_AFTER = timedelta(hours=1)
_MOST_REMEMBERED = 10_000


class Decisions:
    """Writes them down; a warm process remembers what it refused."""

    def __init__(self, table: str, recorder: Recorder, *, logger: Logger) -> None:
        self._table = table
        self._recorder = recorder
        self._logger = logger
        self._refused: dict[tuple[str, str, str], datetime] = runtime.current().cached("disruption:refused", dict)

    def took(self, action: Command, *, id_: str, now: datetime) -> None:
        """An action is begun."""
        self._logger.info(
            "Disrupting nodes",
            extra={
                "decision": id_,
                "reason": action.reason,
                "why": action.message,
                "nodes": action.nodes,
                "replacements": len(action.replacements),
                "savings": round(action.savings, 6),
                "pods": action.pod_count,
            },
        )
        for removal in action.removals:
            self._put(
                DecisionRecord(
                    node=removal.node,
                    at=now,
                    outcome=decision_log.TAKEN,
                    reason=removal.reason,
                    why=removal.message,
                    savings=action.savings,
                    pods=action.pod_count,
                    nodes=len(action.removals),
                    replacements=len(action.replacements),
                )
            )

    def gave_up(self, nodes: Iterable[str], *, reason: str, why: str, now: datetime) -> None:
        """An action was put back."""
        for node in nodes:
            self._logger.info("A node stays after all", extra={"node": node, "reason": reason, "why": why})
            self._put(DecisionRecord(node=node, at=now, outcome=decision_log.UNDONE, reason=reason, why=why))

    def refused(self, refused: BlockedCandidate, node: ObjectRef | None, *, now: datetime) -> bool:
        """A node is kept although there is a reason for it to go. False when that was told within the hour."""
        # What just doesn't pay is said with figures that change each minute.
        key = refused.node, refused.reason, refused.message if refused.blocker.by else ""
        said = self._refused.get(key)
        if said is not None and now - said < AGAIN_AFTER:
            return False
        why, by = refused.blocker.message, refused.blocker.by
        if node is not None:
            event = EventReason("Unconsolidatable" if refused.reason == UNDERUTILIZED else "DisruptionBlocked")
            self._recorder.record(node, "Normal", event, f"{refused.reason}: {why}")
        self._logger.info(
            "A node is kept",
            extra={"node": refused.node, "reason": refused.reason, "why": why, "by": by, "savings": refused.savings},
        )
        self._put(
            DecisionRecord(
                node=refused.node,
                at=now,
                outcome=decision_log.REFUSED,
                reason=refused.reason,
                why=why,
                blocked_by=by,
                savings=refused.savings,
                pods=refused.pods,
                nodes=1,
            )
        )
        if len(self._refused) >= _MOST_REMEMBERED:
            self._refused.clear()
        self._refused[key] = now
        return True

    def _put(self, entry: DecisionRecord) -> None:
        try:
            decision_log.put(aws.dynamodb(), self._table, entry)
        except ClientError as error:
            self._logger.warning("A decision was not logged", extra={"node": entry.node, "why": str(error)})
