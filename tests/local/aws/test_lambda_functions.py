"""What Lambda does to functions here: recursive loops are stopped, and invocations end at their timeout."""

from __future__ import annotations

from datetime import timedelta

import boto3

from local.aws.recursive_loops import MAX_INVOCATIONS
from local.faults import Fault
from shared.base import runtime
from tests.local.aws.environment import Environment, Json, arn, function, resource


def deploy(env: Environment, *, window: int = 0, **properties: object) -> None:
    env.deploy(
        Dead=resource("SQS::Queue", QueueName="dead"),
        Work=resource(
            "SQS::Queue",
            QueueName="work",
            VisibilityTimeout=60,
            RedrivePolicy={"deadLetterTargetArn": arn("Dead"), "maxReceiveCount": 3},
        ),
        Function=function(**properties),  # type: ignore[arg-type]  # properties of CloudFormation
        Source=resource(
            "Lambda::EventSourceMapping",
            EventSourceArn=arn("Work"),
            FunctionName={"Ref": "Function"},
            BatchSize=10,
            MaximumBatchingWindowInSeconds=window,
        ),
    )


def send_again(env: Environment, times: int) -> None:
    """Let the function send each message to its own queue again, that many times."""

    def answer(_event: Json) -> None:
        if len(env.probe.events) <= times:
            env.send("Work", f"message {len(env.probe.events)}", DelaySeconds=1)

    env.probe.answer = answer


def test_a_function_that_its_own_messages_invoke_is_stopped_after_sixteen_invocations(env: Environment) -> None:
    deploy(env)
    send_again(env, 40)
    env.send("Work", "start")
    env.run_for(timedelta(minutes=1))
    assert len(env.probe.events) == MAX_INVOCATIONS
    assert len(env.cloud.functions.recursive_invocations_dropped) == 1


def test_the_dropped_message_goes_to_the_dead_letter_queue_after_its_receives(env: Environment) -> None:
    deploy(env)
    send_again(env, 40)
    env.send("Work", "start")
    env.run_for(timedelta(minutes=10))
    assert len(env.probe.events) == MAX_INVOCATIONS
    assert env.queue("Work") == []
    assert env.queue("Dead") == [f"message {MAX_INVOCATIONS}"]


def test_a_function_whose_recursion_is_allowed_is_not_stopped(env: Environment) -> None:
    deploy(env, RecursiveLoop="Allow")
    send_again(env, 40)
    env.send("Work", "start")
    env.run_for(timedelta(minutes=2))
    assert len(env.probe.events) == 41
    assert env.cloud.functions.recursive_invocations_dropped == []


def test_messages_from_outside_start_a_new_chain_each(env: Environment) -> None:
    deploy(env)
    for number in range(40):
        env.send("Work", f"message {number}")
        env.settle()
    assert len(env.probe.events) == 40


def test_a_batch_continues_its_longest_chain(env: Environment) -> None:
    deploy(env, window=5)
    send_again(env, 40)
    for _ in range(30):
        env.send("Work", "from outside", DelaySeconds=3)
        env.run_for(timedelta(seconds=6))
    assert len(env.cloud.functions.recursive_invocations_dropped) >= 1


def test_events_put_by_a_function_start_a_new_chain(env: Environment) -> None:
    deploy(env)
    backend = boto3.client("events")
    rule = backend.put_rule(Name="loop", EventPattern='{"source": ["test"]}')
    assert rule["RuleArn"]
    queue = boto3.client("sqs").get_queue_attributes(
        QueueUrl=env.cloud.deployed.physical_ids["Work"], AttributeNames=["QueueArn"]
    )
    backend.put_targets(Rule="loop", Targets=[{"Id": "work", "Arn": queue["Attributes"]["QueueArn"]}])

    def answer(_event: Json) -> None:
        if len(env.probe.events) <= 30:
            backend.put_events(Entries=[{"Source": "test", "DetailType": "loop", "Detail": "{}"}])

    env.probe.answer = answer
    env.send("Work", "start")
    env.run_for(timedelta(minutes=1))
    assert len(env.probe.events) == 31


def test_an_invocation_ends_at_its_timeout_and_its_message_is_delivered_again(env: Environment) -> None:
    deploy(env)
    waits = [30.0]
    sent: list[str] = []

    def answer(_event: Json) -> None:
        runtime.current().sleep(waits.pop() if waits else 0)
        env.send("Dead", "done")
        sent.append("done")

    env.probe.answer = answer
    env.send("Work", "slow")
    start = env.clock.now()
    env.settle()
    (killed,) = env.cloud.functions.invocations
    assert killed.error == "TimedOut: Task timed out after 10.00 seconds"
    assert timedelta(seconds=10) <= env.clock.now() - start < timedelta(seconds=11)
    assert sent == []
    env.run_for(timedelta(seconds=65))
    assert [invocation.ok for invocation in env.cloud.functions.invocations] == [False, True]
    assert sent == ["done"]
    assert env.cloud.functions.invocations[-1].cold


def test_a_call_to_aws_that_hangs_ends_at_the_timeout(env: Environment) -> None:
    deploy(env)
    env.probe.answer = lambda _event: env.send("Dead", "sent")
    env.send("Work", "slow")
    env.cloud.faults.inject_aws("sqs", "SendMessage", Fault(delay=60.0))
    start = env.clock.now()
    env.settle()
    assert env.cloud.functions.invocations[0].error.startswith("TimedOut")
    assert env.clock.now() - start < timedelta(seconds=11)
    assert env.queue("Dead") == []


def test_work_after_the_timeout_changes_nothing(env: Environment) -> None:
    deploy(env)

    def answer(_event: Json) -> None:
        env.clock.sleep(11)  # work, not a wait: nothing interrupts it
        env.send("Dead", "too late")

    env.probe.answer = answer
    env.send("Work", "slow")
    env.settle()
    assert env.cloud.functions.invocations[0].error.startswith("TimedOut")
    assert env.queue("Dead") == []
