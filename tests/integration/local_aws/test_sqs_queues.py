from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

from tests.integration.local_aws.rig import Json, Rig, arn, function, resource

MINUTE = timedelta(minutes=1)


def deploy(rig: Rig, *, fifo: bool = False, batch: int = 10, window: int = 0) -> None:
    suffix: dict[str, Any] = {"FifoQueue": True, "ContentBasedDeduplication": True} if fifo else {}
    name = ".fifo" if fifo else ""
    rig.deploy(
        Dead=resource("SQS::Queue", QueueName=f"dead{name}", **suffix),
        Work=resource(
            "SQS::Queue",
            QueueName=f"work{name}",
            VisibilityTimeout=60,
            RedrivePolicy={"deadLetterTargetArn": arn("Dead"), "maxReceiveCount": 3},
            **suffix,
        ),
        Function=function(),
        Source=resource(
            "Lambda::EventSourceMapping",
            EventSourceArn=arn("Work"),
            FunctionName={"Ref": "Function"},
            BatchSize=batch,
            FunctionResponseTypes=["ReportBatchItemFailures"],
            MaximumBatchingWindowInSeconds=window,
        ),
    )


def refuse(*bodies: str) -> Json:
    def answer(event: Json) -> Json:
        failed = [{"itemIdentifier": r["messageId"]} for r in event["Records"] if r["body"] in bodies]
        return {"batchItemFailures": failed}

    return answer


def test_a_message_reaches_the_function_at_once_and_is_gone_afterwards(rig: Rig) -> None:
    deploy(rig)
    rig.send("Work", "hello")
    rig.settle()
    assert rig.probe.bodies == ["hello"]
    assert rig.queue("Work") == []
    record = rig.probe.events[0]["Records"][0]
    assert record["eventSource"] == "aws:sqs"
    assert record["attributes"]["ApproximateReceiveCount"] == "1"


def test_a_delayed_message_is_delivered_after_its_delay(rig: Rig) -> None:
    deploy(rig)
    sent = rig.clock.now()
    rig.send("Work", "later", DelaySeconds=900)
    rig.settle()
    assert rig.probe.events == []
    due = rig.cloud.queues.due()
    assert due is not None
    assert timedelta(seconds=900) <= due - sent < timedelta(seconds=910)
    rig.clock.skip_to(due)
    rig.settle()
    assert rig.probe.bodies == ["later"]


def test_only_failed_messages_are_redelivered_after_their_visibility_timeout(rig: Rig) -> None:
    deploy(rig)
    rig.probe.answer = refuse("bad")
    rig.send("Work", "good")
    rig.send("Work", "bad")
    rig.settle()
    rig.run_for(timedelta(seconds=50))
    assert rig.probe.bodies == ["good", "bad"]
    rig.run_for(timedelta(seconds=15))
    assert rig.probe.bodies == ["good", "bad", "bad"]


def test_a_poison_message_is_dead_lettered_after_its_receives(rig: Rig) -> None:
    deploy(rig)
    rig.probe.answer = refuse("poison")
    rig.send("Work", "poison")
    rig.run_for(10 * MINUTE)
    assert rig.probe.bodies == ["poison"] * 3
    assert rig.queue("Dead") == ["poison"]
    assert rig.queue("Work") == []
    assert [letter.body for letter in rig.cloud.dead_letters()] == ["poison"]


def test_a_function_that_raises_fails_the_whole_batch(rig: Rig) -> None:
    deploy(rig)

    def fail_once(_event: Json) -> None:
        if len(rig.probe.events) == 1:
            raise ValueError("no")

    rig.probe.answer = fail_once
    rig.send("Work", "a")
    rig.send("Work", "b")
    rig.settle()
    assert rig.queue("Work") == ["a", "b"]
    rig.run_for(2 * MINUTE)
    assert rig.probe.bodies == ["a", "b", "a", "b"]
    assert rig.queue("Work") == []
    failed = rig.cloud.functions.invocations[0]
    assert (failed.ok, failed.error) == (False, "ValueError: no")


def test_a_batch_waits_for_its_window_unless_it_is_full(rig: Rig) -> None:
    deploy(rig, batch=2, window=5)
    rig.send("Work", "1")
    rig.settle()
    assert rig.probe.events == []
    rig.send("Work", "2")
    rig.settle()
    assert rig.probe.bodies == ["1", "2"]
    rig.send("Work", "3")
    rig.run_for(timedelta(seconds=6))
    assert rig.probe.bodies == ["1", "2", "3"]


def test_a_fifo_group_waits_behind_its_failed_message_and_other_groups_go_on(rig: Rig) -> None:
    deploy(rig, fifo=True, batch=1)

    def refuse_a1_once(event: Json) -> Json:
        return refuse("a1")(event) if rig.probe.bodies.count("a1") == 1 else None

    rig.probe.answer = refuse_a1_once
    for body, group in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        rig.send("Work", body, MessageGroupId=group)
    rig.settle()
    assert rig.probe.bodies == ["a1", "b1"]
    rig.run_for(2 * MINUTE)
    assert rig.probe.bodies == ["a1", "b1", "a1", "a2"]


def test_a_function_may_delay_its_own_continuation(rig: Rig) -> None:
    deploy(rig)

    def go_on(_event: Json) -> None:
        if len(rig.probe.events) < 3:
            rig.send("Work", f"round {len(rig.probe.events)}", DelaySeconds=15)

    rig.probe.answer = go_on
    rig.send("Work", "round 0")
    rig.run_for(MINUTE)
    assert rig.probe.bodies == ["round 0", "round 1", "round 2"]
    starts = [invocation.at for invocation in rig.cloud.functions.invocations]
    assert all(later - earlier >= timedelta(seconds=15) for earlier, later in pairwise(starts))
