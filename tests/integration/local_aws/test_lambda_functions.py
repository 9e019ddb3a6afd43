"""What Lambda does to functions here: recursive loops are stopped, and invocations end at their timeout."""

from __future__ import annotations

from datetime import timedelta

import boto3

from local.aws.recursive_loops import MAX_INVOCATIONS
from local.faults import Fault
from shared.base import runtime
from tests.integration.local_aws.rig import Json, Rig, arn, function, resource


def deploy(rig: Rig, *, window: int = 0, **properties: object) -> None:
    rig.deploy(
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


def send_again(rig: Rig, times: int) -> None:
    """Let the function send each message to its own queue again, that many times."""

    def answer(_event: Json) -> None:
        if len(rig.probe.events) <= times:
            rig.send("Work", f"message {len(rig.probe.events)}", DelaySeconds=1)

    rig.probe.answer = answer


def test_a_function_that_its_own_messages_invoke_is_stopped_after_sixteen_invocations(rig: Rig) -> None:
    deploy(rig)
    send_again(rig, 40)
    rig.send("Work", "start")
    rig.run_for(timedelta(minutes=1))
    assert len(rig.probe.events) == MAX_INVOCATIONS
    assert len(rig.cloud.functions.recursive_invocations_dropped) == 1


def test_the_dropped_message_goes_to_the_dead_letter_queue_after_its_receives(rig: Rig) -> None:
    deploy(rig)
    send_again(rig, 40)
    rig.send("Work", "start")
    rig.run_for(timedelta(minutes=10))
    assert len(rig.probe.events) == MAX_INVOCATIONS
    assert rig.queue("Work") == []
    assert rig.queue("Dead") == [f"message {MAX_INVOCATIONS}"]


def test_a_function_whose_recursion_is_allowed_is_not_stopped(rig: Rig) -> None:
    deploy(rig, RecursiveLoop="Allow")
    send_again(rig, 40)
    rig.send("Work", "start")
    rig.run_for(timedelta(minutes=2))
    assert len(rig.probe.events) == 41
    assert rig.cloud.functions.recursive_invocations_dropped == []


def test_messages_from_outside_start_a_new_chain_each(rig: Rig) -> None:
    deploy(rig)
    for number in range(40):
        rig.send("Work", f"message {number}")
        rig.settle()
    assert len(rig.probe.events) == 40


def test_a_batch_continues_its_longest_chain(rig: Rig) -> None:
    deploy(rig, window=5)
    send_again(rig, 40)
    for _ in range(30):
        rig.send("Work", "from outside", DelaySeconds=3)
        rig.run_for(timedelta(seconds=6))
    assert len(rig.cloud.functions.recursive_invocations_dropped) >= 1


def test_events_put_by_a_function_start_a_new_chain(rig: Rig) -> None:
    deploy(rig)
    backend = boto3.client("events")
    rule = backend.put_rule(Name="loop", EventPattern='{"source": ["test"]}')
    assert rule["RuleArn"]
    queue = boto3.client("sqs").get_queue_attributes(
        QueueUrl=rig.cloud.deployed.physical_ids["Work"], AttributeNames=["QueueArn"]
    )
    backend.put_targets(Rule="loop", Targets=[{"Id": "work", "Arn": queue["Attributes"]["QueueArn"]}])

    def answer(_event: Json) -> None:
        if len(rig.probe.events) <= 30:
            backend.put_events(Entries=[{"Source": "test", "DetailType": "loop", "Detail": "{}"}])

    rig.probe.answer = answer
    rig.send("Work", "start")
    rig.run_for(timedelta(minutes=1))
    assert len(rig.probe.events) == 31


def test_an_invocation_ends_at_its_timeout_and_its_message_is_delivered_again(rig: Rig) -> None:
    deploy(rig)
    waits = [30.0]
    sent: list[str] = []

    def answer(_event: Json) -> None:
        runtime.current().sleep(waits.pop() if waits else 0)
        rig.send("Dead", "done")
        sent.append("done")

    rig.probe.answer = answer
    rig.send("Work", "slow")
    start = rig.clock.now()
    rig.settle()
    (killed,) = rig.cloud.functions.invocations
    assert killed.error == "TimedOut: Task timed out after 10.00 seconds"
    assert timedelta(seconds=10) <= rig.clock.now() - start < timedelta(seconds=11)
    assert sent == []
    rig.run_for(timedelta(seconds=65))
    assert [invocation.ok for invocation in rig.cloud.functions.invocations] == [False, True]
    assert sent == ["done"]
    assert rig.cloud.functions.invocations[-1].cold


def test_a_call_to_aws_that_hangs_ends_at_the_timeout(rig: Rig) -> None:
    deploy(rig)
    rig.probe.answer = lambda _event: rig.send("Dead", "sent")
    rig.send("Work", "slow")
    rig.cloud.faults.inject_aws("sqs", "SendMessage", Fault(delay=60.0))
    start = rig.clock.now()
    rig.settle()
    assert rig.cloud.functions.invocations[0].error.startswith("TimedOut")
    assert rig.clock.now() - start < timedelta(seconds=11)
    assert rig.queue("Dead") == []


def test_work_after_the_timeout_changes_nothing(rig: Rig) -> None:
    deploy(rig)

    def answer(_event: Json) -> None:
        rig.clock.sleep(11)  # work, not a wait: nothing interrupts it
        rig.send("Dead", "too late")

    rig.probe.answer = answer
    rig.send("Work", "slow")
    rig.settle()
    assert rig.cloud.functions.invocations[0].error.startswith("TimedOut")
    assert rig.queue("Dead") == []
