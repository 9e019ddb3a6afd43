"""A stub cluster with a local AWS account: everything that a function's real handler needs to run in this process.

The Kubernetes API is a stub in another process (bench/stub_api_server.py); AWS is local, in this process.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import functools
import json
import os
import sys
import time
from datetime import UTC, datetime
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import boto3
from moto.ec2 import ec2_backends
from moto.ec2.models.tags import TagBackend

from bench.stub_api_server import stub_api_server
from local.aws.backends import replaced
from local.aws.cloud import Cloud
from local.faults import Fault
from local.world import catalog_cache
from shared.base import runtime
from shared.instance_types import catalog_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

CLUSTER = "demo"
REGION = "us-east-1"
TABLE = "tenon"
BUCKET = "tenon-catalog"
ACCOUNT = "123456789012"
PROFILE = "KarpenterInstanceProfile"
_BATCH_SIZE = 500
_QUEUES = ("termination", "disruption", "node-groups", "dead-letters", "events")


def launch(numbers: Iterable[int]) -> None:
    """Run the instances of the stub's NodeClaims with these numbers.

    The local EC2 takes longer for each further instance, so all but the first are its copies with ids of their own.
    """
    ids = [f"i-{number:017x}" for number in numbers]
    if not ids:
        return
    ec2, backend = boto3.client("ec2"), ec2_backends[ACCOUNT][REGION]
    owned: Any = [{"Key": f"kubernetes.io/cluster/{CLUSTER}", "Value": "owned"}]
    ec2.run_instances(
        ImageId=ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"],
        InstanceType="m5.large",
        MinCount=1,
        MaxCount=1,
        InstanceMarketOptions={"MarketType": "spot"},
        TagSpecifications=[{"ResourceType": "instance", "Tags": owned}],
    )
    reservation = next(reversed(backend.reservations.values()))
    (launched,) = reservation.instances
    tags = backend.tags.pop(launched.id)
    del backend.reservations[reservation.id]
    for start in range(0, len(ids), _BATCH_SIZE):
        batch = copy.copy(reservation)
        batch.id, batch.instances = f"{reservation.id}{start}", []
        backend.reservations[batch.id] = batch
        for instance_id in ids[start : start + _BATCH_SIZE]:
            instance = copy.copy(launched)
            instance.id = instance_id
            backend.tags[instance_id] = dict(tags)
            batch.instances.append(instance)


def _quick_tags(describe: Callable[..., list[dict[str, str]]]) -> Callable[..., list[dict[str, str]]]:
    """Wraps moto's search for the tags of one resource, which reads those of all."""

    @functools.wraps(describe)
    def described(backend: Any, filters: dict[str, list[str]] | None = None) -> list[dict[str, str]]:
        ids = filters.get("resource-id", []) if filters and len(filters) == 1 else []
        if len(ids) != 1 or not ids[0].startswith("i-"):
            return describe(backend, filters)
        tagged = {"resource_id": ids[0], "resource_type": "instance"}
        return [{**tagged, "key": key, "value": value} for key, value in backend.tags.get(ids[0], {}).items()]

    return described


@contextlib.contextmanager
def account(
    nodes: int, pods: int, *, with_catalog: bool = True, ec2_seconds: Mapping[str, float] = MappingProxyType({})
) -> Iterator[Mapping[str, str]]:
    """The environment variables of all functions, for a cluster of that size; of other processes too.

    ``with_catalog``: the catalog exists already. ``ec2_seconds``: how long EC2 takes for each call, by operation.
    """
    raw = catalog_cache.load_or_fetch(region=REGION, seed=0, now=datetime.now(UTC))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        os.environ.setdefault(name, "x")
    with (
        replaced(TagBackend, "describe_tags", _quick_tags(TagBackend.describe_tags)),
        stub_api_server(nodes, pods) as (url, authority),
        Cloud(now=lambda: datetime.now(UTC), sleep=time.sleep, region=REGION) as cloud,
    ):
        for operation, seconds in ec2_seconds.items():
            cloud.faults.inject_aws("ec2", operation, Fault(delay=seconds), times=sys.maxsize)
        cloud.prepare(
            cluster=CLUSTER,
            version="1.34",
            endpoint=url,
            certificate_authority=base64.b64encode(authority.encode()).decode(),
        )
        _create_table_and_bucket()
        if with_catalog:
            with runtime.using(runtime.Runtime(environ={})):
                catalog_store.save(boto3.client("s3"), BUCKET, raw)
        queues = {name: boto3.client("sqs").create_queue(QueueName=name)["QueueUrl"] for name in _QUEUES}
        with cloud.endpoint() as endpoint:
            yield {**_environ(queues), "AWS_ENDPOINT_URL": endpoint.url, "AWS_DEFAULT_REGION": REGION}


def _create_table_and_bucket() -> None:
    boto3.client("s3").create_bucket(Bucket=BUCKET)
    keys: Any = [("pk", "HASH"), ("sk", "RANGE")]
    boto3.client("dynamodb").create_table(
        TableName=TABLE,
        KeySchema=[{"AttributeName": n, "KeyType": t} for n, t in keys],
        AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n, _ in keys],
        BillingMode="PAY_PER_REQUEST",
    )


def _environ(queues: Mapping[str, str]) -> dict[str, str]:
    """The environment variables, with the URLs of queues by name."""
    return {
        "TENON_CLUSTER_NAME": CLUSTER,
        "TENON_EVENT_BUS_NAME": "tenon-demo",
        "TENON_TABLE_NAME": TABLE,
        "TENON_CATALOG_BUCKET": BUCKET,
        "TENON_NODE_INSTANCE_PROFILE": PROFILE,
        "TENON_TERMINATION_QUEUE_URL": queues["termination"],
        "TENON_DISRUPTION_QUEUE_URL": queues["disruption"],
        "TENON_NODE_GROUP_QUEUE_URL": queues["node-groups"],
        "TENON_DEAD_LETTER_QUEUE_URL": queues["dead-letters"],
        "TENON_BUFFER_QUEUES": '["orders"]',
        "TENON_BUFFER_ALARMS": "[]",
        "TENON_BUFFER_EVENTS": "[]",
    }


def scheduled() -> dict[str, Any]:
    """A scheduled event of EventBridge."""
    return {
        "version": "0",
        "id": "m",
        "source": "aws.events",
        "detail-type": "Scheduled Event",
        "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "detail": {},
    }


def batch(bodies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The event of an SQS queue with these bodies."""
    return {
        "Records": [
            {
                "messageId": f"m-{number}",
                "receiptHandle": "x",
                "body": json.dumps(body),
                "attributes": {"ApproximateReceiveCount": "1"},
                "eventSourceARN": f"arn:aws:sqs:{REGION}:{ACCOUNT}:events",
            }
            for number, body in enumerate(bodies)
        ]
    }


def context(function: str, *, run: int = 0, seconds: float = 120) -> Any:
    """The Lambda context of a handler with these seconds left."""
    return SimpleNamespace(
        function_name=function,
        memory_limit_in_mb=1024,
        invoked_function_arn="arn:x",
        aws_request_id=f"run-{run}",
        get_remaining_time_in_millis=lambda: int(seconds * 1000),
    )
