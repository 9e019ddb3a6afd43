"""AWS clients, created once per process with the same configuration.

Retries use boto3's standard mode with few attempts: a throttled function returns its message to the queue, where
waiting costs nothing, instead of multiplying calls. CreateFleet is never retried here (``shared.launch`` decides).
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from shared.base import runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import PaginatorConfigTypeDef
    from mypy_boto3_eks import EKSClient
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_iam import IAMClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_pricing import PricingClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_ssm import SSMClient

T = TypeVar("T")
UntypedClient = Any
"""A client whose type stubs aren't installed."""

ATTEMPTS = 3
CONNECT_SECONDS = 3
READ_SECONDS = 10
CREATE_FLEET_SECONDS = 15
"""The time-outs of a call. All attempts together, and CreateFleet's one attempt in the second half of an invocation,
end before the shortest timeout of a function, so that the function handles the error instead of being killed."""
_PRICES_READ_SECONDS = 30
_MAX_FILTER_VALUES = 200
"""EC2 refuses a call whose filters have more values in total (FilterLimitExceeded)."""
PAGES: PaginatorConfigTypeDef = {"PageSize": 1000}
"""For lists that grow with the cluster or the account: without a page size, EC2 throttles such calls, or they time
out (docs.aws.amazon.com/ec2/latest/devguide/ec2-api-pagination.html)."""


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
        page = self._call("query", request, {"Items": []})
        yield page
        while "LastEvaluatedKey" in page:
            following = {**request, "ExclusiveStartKey": page["LastEvaluatedKey"]}
            page = self._call("query", following, {"Items": []})
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


def filter_chunks(values: Sequence[str], *, further_values: int = 0) -> Iterator[list[str]]:
    """The values in chunks of which each fits in one call of EC2's, next to ``further_values`` of its other filters."""
    size = _MAX_FILTER_VALUES - further_values
    for start in range(0, len(values), size):
        yield list(values[start : start + size])


def _config() -> Config:
    return Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        user_agent_extra="tenon",
    )


def _cached(name: str, make: Callable[[], T]) -> T:
    """The client of that name, created once per process."""
    return runtime.cached(f"aws:{name}", make)


def ec2() -> EC2Client:
    """EC2."""
    return _cached("ec2", lambda: boto3.client("ec2", config=_config()))


def ec2_short_timeout() -> EC2Client:
    """EC2 with a time-out of two seconds and no retry: for answers that are useful only at once."""
    short_timeout = Config(connect_timeout=1, read_timeout=2, retries={"mode": "standard", "total_max_attempts": 1})
    return _cached("ec2-short-timeout", lambda: boto3.client("ec2", config=_config().merge(short_timeout)))


def ec2_without_retries() -> EC2Client:
    """EC2 without retries: for CreateFleet, whose rate limit is low. Its answer waits for the launch."""
    one_attempt = _config().merge(
        Config(read_timeout=CREATE_FLEET_SECONDS, retries={"mode": "standard", "total_max_attempts": 1})
    )
    return _cached("ec2-without-retries", lambda: boto3.client("ec2", config=one_attempt))


def autoscaling() -> UntypedClient:
    """Auto Scaling, for node groups."""
    return _cached("autoscaling", lambda: boto3.client("autoscaling", config=_config()))


def arc_zonal_shift() -> UntypedClient:
    """ARC's zonal shifts."""
    return _cached("arc-zonal-shift", lambda: boto3.client("arc-zonal-shift", config=_config()))


def ssm() -> SSMClient:
    """Systems Manager, for public parameters."""
    return _cached("ssm", lambda: boto3.client("ssm", config=_config()))


def iam() -> IAMClient:
    """IAM, for instance profiles. Its time-outs are short: from many private subnets it can't be reached."""
    short_timeout = Config(connect_timeout=2, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 2})
    return _cached("iam", lambda: boto3.client("iam", config=_config().merge(short_timeout)))


def eks() -> EKSClient:
    """EKS, for the cluster's endpoint."""
    return _cached("eks", lambda: boto3.client("eks", config=_config()))


def cloudwatch() -> CloudWatchClient:
    """CloudWatch, for the states of alarms and the values of metrics."""
    return _cached("cloudwatch", lambda: boto3.client("cloudwatch", config=_config()))


def lambda_functions() -> LambdaClient:
    """Lambda, for the configuration of the functions."""
    return _cached("lambda", lambda: boto3.client("lambda", config=_config()))


def sqs() -> SQSClient:
    """SQS."""
    return _cached("sqs", lambda: boto3.client("sqs", config=_config()))


def sqs_short_timeout() -> SQSClient:
    """SQS with time-outs of a second and no retry: for hints that somebody waits for, and that a sweep replaces."""
    short_timeout = Config(connect_timeout=1, read_timeout=1, retries={"mode": "standard", "total_max_attempts": 1})
    return _cached("sqs-short-timeout", lambda: boto3.client("sqs", config=_config().merge(short_timeout)))


def events() -> EventBridgeClient:
    """EventBridge."""
    return _cached("events", lambda: boto3.client("events", config=_config()))


def events_without_retries() -> EventBridgeClient:
    """EventBridge with a time-out of five seconds and no retry: for the relay, which sends again by itself."""
    one_attempt = Config(connect_timeout=2, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 1})
    return _cached("events-without-retries", lambda: boto3.client("events", config=_config().merge(one_attempt)))


def dynamodb() -> DynamoDBClient:
    """DynamoDB, for rows that may be lost: its failures are logged and not raised, and its time-outs are short."""
    short_timeout = Config(connect_timeout=1, read_timeout=2, retries={"mode": "standard", "total_max_attempts": 2})

    def make() -> DynamoDBClient:
        client = boto3.client("dynamodb", config=_config().merge(short_timeout))
        best_effort: Any = BestEffortDynamoDB(client)
        return cast("DynamoDBClient", best_effort)  # it has the operations that rows need

    return _cached("dynamodb", make)


def dynamodb_with_errors() -> DynamoDBClient:
    """DynamoDB, whose failures are raised: for those who show its rows, or conclude something from a missing one."""
    return _cached("dynamodb-with-errors", lambda: boto3.client("dynamodb", config=_config()))


def s3() -> S3Client:
    """S3, for the catalog."""
    return _cached("s3", lambda: boto3.client("s3", config=_config()))


def pricing(region: str) -> PricingClient:
    """The price list with the prices of a Region. It has endpoints in few Regions, and a partition only has its own."""
    endpoint = "cn-northwest-1" if region.startswith("cn-") else "us-east-1"
    slow = _config().merge(Config(read_timeout=_PRICES_READ_SECONDS))
    return _cached("pricing", lambda: boto3.client("pricing", region_name=endpoint, config=slow))


def savings_plans() -> UntypedClient:
    """Savings Plans: one endpoint for all Regions of a partition, which botocore knows by the Region."""
    return _cached("savings-plans", lambda: boto3.client("savingsplans", config=_config()))


def error_code(error: ClientError) -> str:
    """AWS's code of an error, such as "UnauthorizedOperation"."""
    return error.response.get("Error", {}).get("Code", "")
