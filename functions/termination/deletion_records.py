"""Records nodes that were deleted by hand: a row in the decision log, which has the nodes that Tenon removes.

Nothing else is left of such a node: its NodeClaim is gone, and events are kept for an hour. The row is written when the
NodeClaim is finalized, so functions that deleted it have written their own rows by then. It is only a record: where it
can't be written, the node goes all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from shared.api.standby import standby_state
from shared.base import decision_log
from shared.base.decision_log import DELETED_BY_HAND, TAKEN, UNDONE, DecisionRecord
from shared.disruption.disruption_queue import QUEUE_ANNOTATION

if TYPE_CHECKING:
    from collections.abc import Callable

    from aws_lambda_powertools import Logger
    from mypy_boto3_dynamodb import DynamoDBClient

    from shared.api.nodeclaim import NodeClaim

_WHY = "somebody deleted the node, its NodeClaim or its NodePool"


class DeletionRecorder:
    """Writes the rows; DynamoDB is only called for NodeClaims that no disruption command has removed."""

    def __init__(self, table: str, *, dynamodb: Callable[[], DynamoDBClient], logger: Logger) -> None:
        self._table = table
        self._dynamodb = dynamodb
        self._logger = logger

    def record(self, claim: NodeClaim) -> None:
        """Write a row about the NodeClaim's node if no function of Tenon's has decided to remove it."""
        deleted = claim.metadata.deletion_timestamp
        is_node = bool(claim.status.provider_id) and not standby_state(claim)
        if deleted is None or not is_node or QUEUE_ANNOTATION in claim.metadata.annotations:
            return
        node = claim.status.node_name or claim.name
        try:
            if self._is_explained(node, claim):
                return
            entry = DecisionRecord(node=node, at=deleted, outcome=TAKEN, reason=DELETED_BY_HAND, why=_WHY, nodes=1)
            decision_log.put(self._dynamodb(), self._table, entry)
        except (BotoCoreError, ClientError) as error:
            self._logger.warning("Couldn't record a deletion", extra={"nodeclaim": claim.name, "why": str(error)})

    def _is_explained(self, node: str, claim: NodeClaim) -> bool:
        """Whether the last decision about this very node was to remove it; node names are used again."""
        created = claim.metadata.creation_timestamp
        for decision in decision_log.latest(self._dynamodb(), self._table, node):
            if created is not None and decision.at < created:
                return False
            if decision.outcome in {TAKEN, UNDONE}:
                return decision.outcome == TAKEN
        return False
