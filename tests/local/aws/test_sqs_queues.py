from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

from tests.local.aws.environment import Environment, Json, arn, function, resource

MINUTE = timedelta(minutes=1)


def deploy(env: Environment, *, fifo: bool = False, batch: int = 10, window: int = 0) -> None:
    suffix: dict[str, Any] = {"FifoQueue": True, "ContentBasedDeduplication": True} if fifo else {}
    name = ".fifo" if fifo else ""
    env.deploy(
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


def test_a_message_reaches_the_function_at_once_and_is_gone_afterwards(env: Environment) -> None:
    deploy(env)
    env.send("Work", "hello")
    env.settle()
    assert env.probe.bodies == ["hello"]
    assert env.queue("Work") == []
    record = env.probe.events[0]["Records"][0]
    assert record["eventSource"] == "aws:sqs"
    assert record["attributes"]["ApproximateReceiveCount"] == "1"


def test_a_delayed_message_is_delivered_after_its_delay(env: Environment) -> None:
    deploy(env)
    sent = env.clock.now()
    env.send("Work", "later", DelaySeconds=900)
    env.settle()
    assert env.probe.events == []
    due = env.cloud.queues.due()
    assert due is not None
    assert timedelta(seconds=900) <= due - sent < timedelta(seconds=910)
    env.clock.skip_to(due)
    env.settle()
    assert env.probe.bodies == ["later"]


def test_only_failed_messages_are_redelivered_after_their_visibility_timeout(env: Environment) -> None:
    deploy(env)
    env.probe.answer = refuse("bad")
    env.send("Work", "good")
    env.send("Work", "bad")
    env.settle()
    env.run_for(timedelta(seconds=50))
    assert env.probe.bodies == ["good", "bad"]
    env.run_for(timedelta(seconds=15))
    assert env.probe.bodies == ["good", "bad", "bad"]


def test_a_poison_message_is_dead_lettered_after_its_receives(env: Environment) -> None:
    deploy(env)
    env.probe.answer = refuse("poison")
    env.send("Work", "poison")
    env.run_for(10 * MINUTE)
    assert env.probe.bodies == ["poison"] * 3
    assert env.queue("Dead") == ["poison"]
    assert env.queue("Work") == []
    assert [letter.body for letter in env.cloud.dead_letters()] == ["poison"]


def test_a_function_that_raises_fails_the_whole_batch(env: Environment) -> None:
    deploy(env)

    def fail_once(_event: Json) -> None:
        if len(env.probe.events) == 1:
            raise ValueError("no")

    env.probe.answer = fail_once
    env.send("Work", "a")
    env.send("Work", "b")
    env.settle()
    assert env.queue("Work") == ["a", "b"]
    env.run_for(2 * MINUTE)
    assert env.probe.bodies == ["a", "b", "a", "b"]
    assert env.queue("Work") == []
    failed = env.cloud.functions.invocations[0]
    assert (failed.ok, failed.error) == (False, "ValueError: no")


def test_a_batch_waits_for_its_window_unless_it_is_full(env: Environment) -> None:
    deploy(env, batch=2, window=5)
    env.send("Work", "1")
    env.settle()
    assert env.probe.events == []
    env.send("Work", "2")
    env.settle()
    assert env.probe.bodies == ["1", "2"]
    env.send("Work", "3")
    env.run_for(timedelta(seconds=6))
    assert env.probe.bodies == ["1", "2", "3"]


def test_a_fifo_group_waits_behind_its_failed_message_and_other_groups_go_on(env: Environment) -> None:
    deploy(env, fifo=True, batch=1)

    def refuse_a1_once(event: Json) -> Json:
        return refuse("a1")(event) if env.probe.bodies.count("a1") == 1 else None

    env.probe.answer = refuse_a1_once
    for body, group in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        env.send("Work", body, MessageGroupId=group)
    env.settle()
    assert env.probe.bodies == ["a1", "b1"]
    env.run_for(2 * MINUTE)
    assert env.probe.bodies == ["a1", "b1", "a1", "a2"]


def test_a_function_may_delay_its_own_continuation(env: Environment) -> None:
    deploy(env)

    def go_on(_event: Json) -> None:
        if len(env.probe.events) < 3:
            env.send("Work", f"round {len(env.probe.events)}", DelaySeconds=15)

    env.probe.answer = go_on
    env.send("Work", "round 0")
    env.run_for(MINUTE)
    assert env.probe.bodies == ["round 0", "round 1", "round 2"]
    starts = [invocation.at for invocation in env.cloud.functions.invocations]
    assert all(later - earlier >= timedelta(seconds=15) for earlier, later in pairwise(starts))
