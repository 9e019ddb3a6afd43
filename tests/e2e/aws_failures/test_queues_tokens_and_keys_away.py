"""SQS, STS or KMS is away by itself: what continues, and that nothing is lost once it is back."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.aws import backends
from local.faults import ALWAYS, Fault
from tests.e2e.aws_failures.conditions import (
    MINUTE,
    assert_nothing_lost_or_doubled,
    launched,
    small_cluster,
)
from tests.e2e.interruptions.environment import assert_drained_within_notice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.world import World

AWAY = timedelta(minutes=20)


@contextmanager
def no_message_is_received(world: World) -> Iterator[None]:
    """While entered, Lambda gets no message of any queue; EventBridge still sends to them."""
    with ExitStack() as stack:
        stack.enter_context(backends.replaced(world.aws.queues, "step", lambda _now: False))
        stack.enter_context(backends.replaced(world.aws.queues, "due", lambda: None))
        yield


def test_without_sending_interrupted_nodes_are_drained_in_time_and_pods_get_nodes(world: World) -> None:
    small_cluster(world, 6)
    world.faults.fail_service("sqs")
    interrupted = {i.id for i in world.instances()}
    warned = world.clock.now()
    world.interrupt_spot(sorted(interrupted))
    world.scale("default", "web", 8)
    assert_drained_within_notice(world, sorted(interrupted), pods=6, warned=warned)
    world.run_for(AWAY)
    world.faults.clear()
    world.run_for(5 * MINUTE)
    assert_nothing_lost_or_doubled(world, pods=8)


def test_while_no_message_is_received_nothing_is_given_up_and_afterwards_all_is_done(world: World) -> None:
    small_cluster(world, 6)
    nodes = {n["metadata"]["name"] for n in world.nodes()}
    before = launched(world)
    with no_message_is_received(world):
        world.scale("default", "web", 8)
        world.run_for(AWAY)
        assert {n["metadata"]["name"] for n in world.nodes()} == nodes
        assert launched(world) == before
        assert len(world.pods(phase="Running")) == 6
    world.run_for(5 * MINUTE)
    assert_nothing_lost_or_doubled(world, pods=8)
    assert launched(world) == before + 1


def test_without_sts_the_api_server_knows_nobody_and_nodes_stay(world: World) -> None:
    small_cluster(world, 6)
    nodes = {n["metadata"]["name"] for n in world.nodes()}
    before = launched(world)
    world.faults.inject(
        lambda point: point.service == "kubernetes", Fault(code="Unauthorized", status=401), times=ALWAYS
    )
    world.scale("default", "web", 8)
    world.run_for(AWAY)
    assert {n["metadata"]["name"] for n in world.nodes()} == nodes
    assert launched(world) == before
    world.faults.clear()
    world.run_for(5 * MINUTE)
    assert_nothing_lost_or_doubled(world, pods=8)
    assert launched(world) == before + 1


KEY_IS_DISABLED = {"sqs": "KmsDisabled", "s3": "KMS.DisabledException", "dynamodb": "AccessDeniedException"}
"""What each service answers while the key that it encrypts with is disabled."""


@pytest.mark.parametrize("services", [["sqs"], ["s3"], ["dynamodb"], [*KEY_IS_DISABLED]], ids=",".join)
def test_a_disabled_key_of_queue_bucket_or_table_is_as_if_the_service_were_away(
    world: World, services: list[str]
) -> None:
    small_cluster(world, 4)
    for service in services:
        world.faults.fail_service(service, code=KEY_IS_DISABLED[service])
    before = launched(world)
    with no_message_is_received(world) if "sqs" in services else ExitStack():
        world.scale("default", "web", 6)
        world.run_for(AWAY)
    assert ("sqs" in services) == (len(world.pods(phase="Running")) == 4)
    world.faults.clear()
    world.run_for(5 * MINUTE)
    assert_nothing_lost_or_doubled(world, pods=6)
    assert launched(world) == before + 1
