"""Reads and writes rows of the table that all functions share. Every row says when it expires.

The rows may be lost, so nothing stops without them: functions get a :class:`BestEffortDynamoDB`, which reads and writes
nothing while DynamoDB fails.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from shared.base import runtime

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef, WriteRequestUnionTypeDef

    Row = Mapping[str, AttributeValueTypeDef]

_MAX_BATCH_WRITE = 25
_RETRY_DELAYS = (0.05, 0.1, 0.2, 0.4)
"""Seconds before unprocessed items are written again."""


RETRY_AFTER = timedelta(seconds=10)
"""For how long DynamoDB isn't called after a call failed, so that its time-outs don't use up an invocation's time."""
_UNAVAILABLE_UNTIL = "dynamodb:unavailable-until"
CONFLICT = "ConditionalCheckFailedException"
_MISTAKES = ("AccessDenied", "Unrecognized", "Validation", "ResourceNotFound")
"""What the codes of errors begin with that mean a mistake of the deployment, and not an outage."""

_log = logging.getLogger(__name__)


class BestEffortDynamoDB:
    """DynamoDB's client for rows that may be lost: a call that fails is logged, and answers as an empty table would.

    Only a condition that doesn't hold is raised. The answer to a write that failed is empty; DynamoDB's never is.
    """

    def __init__(self, client: DynamoDBClient) -> None:
        self._client = client

    def get_item(self, **request: object) -> Mapping[str, Any]:
        """One row; without ``Item`` if DynamoDB fails."""
        return self._call("get_item", request, {})

    def put_item(self, **request: object) -> Mapping[str, Any]:
        """Write one row."""
        return self._call("put_item", request, {})

    def update_item(self, **request: object) -> Mapping[str, Any]:
        """Change one row."""
        return self._call("update_item", request, {})

    def batch_write_item(self, **request: object) -> Mapping[str, Any]:
        """Write rows; none is left unprocessed if DynamoDB fails."""
        return self._call("batch_write_item", request, {"UnprocessedItems": {}})

    def query(self, **request: object) -> Mapping[str, Any]:
        """Rows of a partition; none if DynamoDB fails."""
        return self._call("query", request, {"Items": []})

    def get_paginator(self, operation: str) -> BestEffortDynamoDB:
        """The pages of ``query``, as a paginator of boto3 has them."""
        assert operation == "query"
        return self

    def paginate(self, **request: object) -> Iterator[Mapping[str, Any]]:
        """The pages of a query, up to one that DynamoDB fails at."""
        page = self.query(**request)
        yield page
        while "LastEvaluatedKey" in page:
            page = self.query(**request, ExclusiveStartKey=page["LastEvaluatedKey"])
            yield page

    def _call(self, operation: str, request: Mapping[str, Any], instead: Mapping[str, Any]) -> Mapping[str, Any]:
        cache = runtime.current().cache
        until: datetime | None = cache.get(_UNAVAILABLE_UNTIL)
        if until is not None and runtime.now() < until:
            return instead
        try:
            answer: Mapping[str, Any] = getattr(self._client, operation)(**request)
        except (BotoCoreError, ClientError) as error:
            code = error.response.get("Error", {}).get("Code", "") if isinstance(error, ClientError) else ""
            if code == CONFLICT:
                raise
            if code.startswith(_MISTAKES):
                _log.error("DynamoDB refuses %s, continuing without it: %s", operation, error)
            else:
                _log.warning("DynamoDB can't be reached by %s, continuing without it: %s", operation, error)
                cache[_UNAVAILABLE_UNTIL] = runtime.now() + RETRY_AFTER
            return instead
        return answer


def put_rows(client: DynamoDBClient, table: str, items: Iterable[Row]) -> None:
    """Write the rows, 25 in a call. Unprocessed ones are written again for about a second, and then dropped.

    Raises:
        ClientError: DynamoDB failed.
    """
    remaining: list[WriteRequestUnionTypeDef] = [{"PutRequest": {"Item": item}} for item in items]
    for delay in _RETRY_DELAYS:
        unprocessed: list[WriteRequestUnionTypeDef] = []
        for start in range(0, len(remaining), _MAX_BATCH_WRITE):
            response = client.batch_write_item(RequestItems={table: remaining[start : start + _MAX_BATCH_WRITE]})
            unprocessed += response["UnprocessedItems"].get(table, [])
        remaining = unprocessed
        if not remaining:
            return
        runtime.sleep(delay)


def unexpired_rows(
    client: DynamoDBClient, table: str, partition: str, *, now: datetime, consistent: bool = False
) -> Iterator[Row]:
    """The rows of a partition that haven't expired: DynamoDB deletes a row up to days after its ``expires``.

    Raises:
        ClientError: DynamoDB failed.
    """
    pages = client.get_paginator("query").paginate(
        TableName=table,
        KeyConditionExpression="pk = :partition",
        FilterExpression="expires > :now",
        ExpressionAttributeValues={":partition": {"S": partition}, ":now": {"N": str(int(now.timestamp()))}},
        ConsistentRead=consistent,
    )
    for page in pages:
        yield from page["Items"]
