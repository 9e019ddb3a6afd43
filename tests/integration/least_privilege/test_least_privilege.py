"""Every deployed role against every listed call: it is allowed what it needs, and nothing else."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.exceptions import ClientError

from local.aws import iam_actions, iam_policies
from local.aws.iam_enforcement import credentials
from tests.integration.least_privilege.calls import ALL, ASKED, CALLS, Asked, Call
from tests.integration.least_privilege.conftest import OWNED, tag_list

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from local.aws.iam_policies import Request, Statement
    from tests.integration.least_privilege.conftest import Made


def asked_by(call: Call, made: Made) -> list[Request]:
    at = dataclasses.replace(made.cloud.enforcement.context, region=call.region)
    with made.cloud.lock:
        return iam_actions.requests(call.service, call.operation, call.params(made), at)


def allowed(requests: Sequence[Request], statements: Sequence[Statement]) -> bool:
    return all(iam_policies.allows(request, identity=statements) for request in requests)


def statements(made: Made, caller: str) -> tuple[Statement, ...]:
    return made.cloud.enforcement.statements(caller)


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_call_is_only_allowed_to_roles_that_need_it(call: Call, made: Made) -> None:
    requests = asked_by(call, made)
    assert {caller for caller in ALL if allowed(requests, statements(made, caller))} == call.may


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked.action)
def test_calls_that_no_code_makes_are_denied_to_all_roles(asked: Asked, made: Made) -> None:
    assert not [caller for caller in ALL if allowed([asked.request(made)], statements(made, caller))]


ALIKE = {
    ("FindProfiles", "resource"): "this action's resources are roles, and it may ask of any",
    ("SeeProfiles", "resource"): "this action's resources are profiles, and it may ask of any",
    ("TerminateOwned", "resource"): "this action's resources are instances; the condition is what narrows it",
    ("DeleteOwnTemplates", "resource"): "this action's resources are templates; the condition is what narrows it",
    ("MakeTemplates", "resource"): "this action's resources are templates; the condition is what narrows it",
    ("LaunchFromOwnTemplates", "resource"): "of what a launch asks for, only templates have tags of their own",
}
"""Statements that mean the same when that part is widened, and why."""


def widened(statement: Statement) -> Iterator[tuple[str, Statement]]:
    """The statement with one of its parts given up, where it has one."""
    yield "action", dataclasses.replace(statement, actions=("*",))
    if statement.resources != ("*",):
        yield "resource", dataclasses.replace(statement, resources=("*",))
    for operator, keys in statement.conditions.items():
        for key in keys:
            left = {name: values for name, values in keys.items() if name != key}
            yield (
                f"condition {key}",
                dataclasses.replace(statement, conditions={**statement.conditions, operator: left}),
            )


@pytest.mark.parametrize("caller", sorted(ALL))
def test_any_widened_statement_is_detected(caller: str, made: Made) -> None:
    forbidden = [asked_by(call, made) for call in CALLS if caller not in call.may]
    forbidden += [[asked.request(made)] for asked in ASKED]
    mine = statements(made, caller)
    unnoticed = [
        (statement.sid or statement.actions[0], part)
        for index, statement in enumerate(mine)
        for part, wider in widened(statement)
        if (statement.sid, part) not in ALIKE
        and not any(allowed(requests, (*mine[:index], wider, *mine[index + 1 :])) for requests in forbidden)
    ]
    assert not unnoticed


def test_a_denied_call_fails_as_in_ec2_and_changes_nothing(made: Made) -> None:
    key = credentials("provisioner")
    ec2 = boto3.client("ec2", aws_access_key_id=key.access_key, aws_secret_access_key=key.secret_key)
    with pytest.raises(ClientError) as refused:
        ec2.terminate_instances(InstanceIds=[made.node])
    assert refused.value.response["Error"]["Code"] == "UnauthorizedOperation"
    assert "ec2:TerminateInstances" in refused.value.response["Error"]["Message"]
    (found,) = boto3.client("ec2").describe_instances(InstanceIds=[made.node])["Reservations"][0]["Instances"]
    assert found["State"]["Name"] in {"pending", "running"}


def test_allowed_calls_take_effect(made: Made) -> None:
    key = credentials("provisioner")
    ec2 = boto3.client("ec2", aws_access_key_id=key.access_key, aws_secret_access_key=key.secret_key)
    ec2.create_tags(Resources=[made.node], Tags=[{"Key": "Name", "Value": "default-abc"}])
    tags = boto3.client("ec2").describe_tags(Filters=[{"Name": "resource-id", "Values": [made.node]}])["Tags"]
    assert {"Name": "default-abc", **OWNED}.items() <= {tag["Key"]: tag["Value"] for tag in tags}.items()
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        ec2.create_tags(Resources=[made.untagged], Tags=tag_list(OWNED))


def test_every_queue_can_be_polled_and_every_failure_kept(made: Made) -> None:
    """What Lambda itself does in a function's name: without these it refuses the source, or drops the event."""
    at = made.cloud.enforcement.context
    for source in made.cloud.deployed.event_source_mappings:
        caller = made.cloud.functions.named(source.function_name).short_name
        for action in ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"):
            request = iam_policies.Request(action=action, resource=source.queue_arn)
            assert iam_policies.allows(request, identity=statements(made, caller)), (caller, action)
    undelivered = at.arn("sqs", made.queue("UndeliveredQueueUrl").rsplit("/", 1)[-1])
    for caller in ALL - {"relay"}:
        request = iam_policies.Request(action="sqs:SendMessage", resource=undelivered)
        assert iam_policies.allows(request, identity=statements(made, caller)), caller


def test_an_unlisted_call_is_an_error(made: Made) -> None:
    with pytest.raises(iam_actions.UnknownCallError, match="ec2:DeleteVpc"):
        iam_actions.requests("ec2", "DeleteVpc", {}, made.cloud.enforcement.context)
