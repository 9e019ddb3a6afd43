"""The stack is deleted while nodes run, and deployed again: nodes and pods live, and are taken over as they are."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import boto3

from local.aws import backends
from tests.e2e.aws_failures.conditions import MINUTE, assert_nothing_lost_or_doubled, launched, small_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.world import World

HOUR = timedelta(hours=1)


@contextmanager
def without_stack(world: World) -> Iterator[None]:
    """While entered, no function and no relay runs; at the end, what the stack keeps is empty, as a new one's."""
    assert world.relay is not None
    actors = (world.aws.functions, world.aws.queues, world.aws.event_buses, world.relay)
    with ExitStack() as stack:
        for actor in actors:
            stack.enter_context(backends.replaced(actor, "step", lambda _now: False))
            stack.enter_context(backends.replaced(actor, "due", lambda: None))
        stack.enter_context(backends.replaced(world.aws.event_buses, "deliver", lambda *_: None))
        stack.enter_context(backends.replaced(world.relay, "has_observed", lambda _of: True))
        yield
        _empty_everything(world)


def _empty_everything(world: World) -> None:
    environ = world.aws.deployed.function("provisioner").environ
    dynamodb, table = boto3.client("dynamodb"), environ["TENON_TABLE_NAME"]
    for item in dynamodb.scan(TableName=table)["Items"]:
        dynamodb.delete_item(TableName=table, Key={"pk": item["pk"], "sk": item["sk"]})
    boto3.client("s3").delete_object(Bucket=environ["TENON_CATALOG_BUCKET"], Key="catalog.bin")
    with world.aws.lock:
        for queue in backends.sqs(world.region).queues.values():
            queue._messages.clear()
    world.aws.functions._idle.clear()


def test_nodes_and_pods_live_on_and_a_new_deployment_takes_them_over(world: World) -> None:
    small_cluster(world, 6)
    nodes = {n["metadata"]["uid"] for n in world.nodes()}
    claims = {c["metadata"]["uid"] for c in world.claims()}
    pods = {p["metadata"]["uid"] for p in world.pods(phase="Running")}
    with without_stack(world):
        world.run_for(2 * HOUR)
        assert {p["metadata"]["uid"] for p in world.pods(phase="Running")} == pods
        world.scale("default", "web", 8)
    world.run_for(8 * MINUTE)
    assert nodes < {n["metadata"]["uid"] for n in world.nodes()}
    assert claims < {c["metadata"]["uid"] for c in world.claims()}
    assert pods < {p["metadata"]["uid"] for p in world.pods(phase="Running")}
    assert launched(world) == 4
    assert_nothing_lost_or_doubled(world, pods=8)
    world.store.delete(world.store.kind("karpenter.sh/v1", "NodePool"), "default")
    world.run_until(lambda: not world.instances() and not world.nodes(), limit=15 * MINUTE)
