"""The decision log: what was decided about which node, taken or refused, and why, for 90 days.

One row a node, so that ``tenon explain node`` asks for one key's prefix: ``pk`` is "decision", ``sk`` the node and the
time. What is refused each minute for the same reason is written once an hour. Losing rows loses answers, nothing else.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared import aws, host

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aws_lambda_powertools import Logger
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

    from shared.disruption.command import Action, Refused

PARTITION = "decision"
KEPT = timedelta(days=90)
AGAIN_AFTER = timedelta(hours=1)
_MOST_REMEMBERED = 10_000


class Decisions:
    """Writes rows; a warm process remembers what it refused."""

    def __init__(self, table: str, *, logger: Logger) -> None:
        self._table = table
        self._logger = logger
        self._refused: dict[tuple[str, str, str], datetime] = host.current().once("disruption:refused", dict)

    def took(self, action: Action, *, id_: str, now: datetime) -> None:
        """An action is begun."""
        saved: dict[str, AttributeValueTypeDef] = {
            "savings": {"N": f"{action.savings:.6f}"},
            "pods": {"N": str(action.moved)},
            "nodes": {"N": str(len(action.removals))},
            "replacements": {"N": str(len(action.replacements))},
        }
        self._logger.info(
            "Disrupting nodes",
            extra={
                "decision": id_,
                "reason": action.reason,
                "why": action.message,
                "nodes": action.nodes,
                "replacements": len(action.replacements),
                "savings": round(action.savings, 6),
                "pods": action.moved,
            },
        )
        for removal in action.removals:
            self._put(removal.node, now, outcome="taken", reason=removal.reason, why=removal.message, more=saved)

    def gave_up(self, nodes: Iterable[str], *, reason: str, why: str, now: datetime) -> None:
        """An action was put back."""
        for node in nodes:
            self._logger.info("A node stays after all", extra={"node": node, "reason": reason, "why": why})
            self._put(node, now, outcome="undone", reason=reason, why=why)

    def refused(self, refused: Refused, *, now: datetime) -> None:
        """A node is kept although there is a reason for it to go."""
        key = refused.node, refused.reason, refused.message
        said = self._refused.get(key)
        if said is not None and now - said < AGAIN_AFTER:
            return
        self._logger.info(
            "A node is kept", extra={"node": refused.node, "reason": refused.reason, "why": refused.message}
        )
        self._put(refused.node, now, outcome="refused", reason=refused.reason, why=refused.message)
        if len(self._refused) >= _MOST_REMEMBERED:
            self._refused.clear()
        self._refused[key] = now

    def _put(
        self,
        node: str,
        now: datetime,
        *,
        outcome: str,
        reason: str,
        why: str,
        more: dict[str, AttributeValueTypeDef] | None = None,
    ) -> None:
        try:
            aws.dynamodb().put_item(
                TableName=self._table,
                Item={
                    "pk": {"S": PARTITION},
                    "sk": {"S": f"{node}#{now.isoformat()}"},
                    "node": {"S": node},
                    "at": {"S": now.isoformat()},
                    "outcome": {"S": outcome},
                    "reason": {"S": reason},
                    "why": {"S": why},
                    "expires": {"N": str(int((now + KEPT).timestamp()))},
                    **(more or {}),
                },
            )
        except ClientError as error:
            self._logger.warning("A decision was not logged", extra={"node": node, "why": str(error)})
