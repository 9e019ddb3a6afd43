"""What functions keep in DynamoDB may be lost: its failures stop nothing, and take little time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError

from shared.base import runtime
from shared.base.aws import RETRY_AFTER, BestEffortDynamoDB
from shared.base.dynamodb_rows import put_rows, unexpired_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.base.dynamodb_rows import Row

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
ROWS: list[Row] = [{"pk": {"S": "p"}, "sk": {"S": str(n)}} for n in range(60)]


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "PutItem")


class Failing:
    """Every call raises the error."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls = 0

    def __getattr__(self, operation: str) -> Any:
        def call(**_request: object) -> NoReturn:
            self.calls += 1
            raise self.error

        return call


class Clock:
    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time


@pytest.fixture
def clock() -> Iterator[Clock]:
    clock = Clock()
    with runtime.using(runtime.Runtime(environ={}, now=clock.now, cache={}, sleep=lambda _: None)):
        yield clock


@pytest.mark.parametrize(
    "error",
    [
        EndpointConnectionError(endpoint_url="https://dynamodb"),
        ConnectTimeoutError(endpoint_url="https://dynamodb"),
        refused("InternalServerError"),
        refused("ThrottlingException"),
        refused("AccessDeniedException"),
    ],
)
def test_without_dynamodb_nothing_is_read_or_written(clock: Clock, error: Exception) -> None:
    client: Any = BestEffortDynamoDB(Failing(error))  # type: ignore[arg-type]
    assert client.get_item(TableName="t", Key={}) == {}
    assert not client.put_item(TableName="t", Item={})
    assert not client.update_item(TableName="t", Key={})
    assert client.query(TableName="t")["Items"] == []
    put_rows(client, "t", ROWS)
    assert list(unexpired_rows(client, "t", "p", now=clock.time)) == []


def test_a_call_that_failed_is_the_only_one_for_ten_seconds(clock: Clock) -> None:
    failing = Failing(EndpointConnectionError(endpoint_url="https://dynamodb"))
    for _ in range(5):
        put_rows(BestEffortDynamoDB(failing), "t", ROWS)  # type: ignore[arg-type]
    assert failing.calls == 1
    clock.time += RETRY_AFTER - timedelta(seconds=1)
    BestEffortDynamoDB(failing).query(TableName="t")  # type: ignore[arg-type]
    assert failing.calls == 1
    clock.time += timedelta(seconds=1)
    BestEffortDynamoDB(failing).query(TableName="t")  # type: ignore[arg-type]
    assert failing.calls == 2


@pytest.mark.usefixtures("clock")
def test_a_condition_that_does_not_hold_is_no_failure() -> None:
    with pytest.raises(ClientError):
        BestEffortDynamoDB(Failing(refused("ConditionalCheckFailedException"))).put_item()  # type: ignore[arg-type]


@pytest.mark.usefixtures("clock")
def test_denied_access_is_an_error_in_the_log_and_an_outage_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    for code in ("AccessDeniedException", "ProvisionedThroughputExceededException"):
        BestEffortDynamoDB(Failing(refused(code))).query()  # type: ignore[arg-type]
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
