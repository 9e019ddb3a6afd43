"""Every deployed role against every listed call: it is allowed what it needs, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.exceptions import ClientError

from local.aws import iam_actions, iam_policies
from local.aws.iam_enforcement import credentials
from shared.base.struct import with_fields
from tests.integration.least_privilege.calls import ALL, CALLS, Call
from tests.integration.least_privilege.conftest import OWNED, tag_list
from tests.integration.least_privilege.unused_actions import UNUSED_ACTIONS, IAMRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from local.aws.iam_policies import Request, Statement
    from tests.integration.least_privilege.conftest import Targets


def requests_of(call: Call, targets: Targets) -> list[Request]:
    at = with_fields(targets.cloud.enforcement.context, region=call.region)
    with targets.cloud.lock:
        return iam_actions.requests(call.service, call.operation, call.params(targets), at)


def allowed(requests: Sequence[Request], statements: Sequence[Statement]) -> bool:
    return all(iam_policies.allows(request, identity=statements) for request in requests)


def statements(targets: Targets, caller: str) -> tuple[Statement, ...]:
    return targets.cloud.enforcement.statements(caller)


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_call_is_only_allowed_to_roles_that_need_it(call: Call, targets: Targets) -> None:
    requests = requests_of(call, targets)
    assert {caller for caller in ALL if allowed(requests, statements(targets, caller))} == call.roles


@pytest.mark.parametrize("unused", UNUSED_ACTIONS, ids=lambda unused: unused.action)
def test_calls_that_no_code_makes_are_denied_to_all_roles(unused: IAMRequest, targets: Targets) -> None:
    assert not [caller for caller in ALL if allowed([unused.request(targets)], statements(targets, caller))]


EQUIVALENT_WHEN_WIDENED = {
    ("FindProfiles", "resource"): "this action's resources are roles, and it may ask of any",
    ("SeeProfiles", "resource"): "this action's resources are profiles, and it may ask of any",
    ("TerminateOwned", "resource"): "this action's resources are instances; the condition is what narrows it",
    ("DeleteOwnTemplates", "resource"): "this action's resources are templates; the condition is what narrows it",
    ("MakeTemplates", "resource"): "this action's resources are templates; the condition is what narrows it",
    ("GrowNodeGroups", "resource"): "this action's resources are groups; the condition is what narrows it",
    ("ShrinkNodeGroups", "resource"): "this action's resources are groups; the condition is what narrows it",
    ("PublishNotifications", "action"): "only PutEvents has the detail type that the condition names",
    ("LaunchFromOwnTemplates", "resource"): "of what a launch asks for, only templates have tags of their own",
}
"""Parts of statements that can be widened without effect, and why."""


def widened(statement: Statement) -> Iterator[tuple[str, Statement]]:
    """The statement with each of its parts widened."""
    yield "action", with_fields(statement, actions=("*",))
    if statement.resources != ("*",):
        yield "resource", with_fields(statement, resources=("*",))
    for operator, keys in statement.conditions.items():
        for key in keys:
            left = {name: values for name, values in keys.items() if name != key}
            yield (
                f"condition {key}",
                with_fields(statement, conditions={**statement.conditions, operator: left}),
            )


@pytest.mark.parametrize("caller", sorted(ALL))
def test_any_widened_statement_is_detected(caller: str, targets: Targets) -> None:
    forbidden = [requests_of(call, targets) for call in CALLS if caller not in call.roles]
    forbidden += [[unused.request(targets)] for unused in UNUSED_ACTIONS]
    role_statements = statements(targets, caller)
    undetected = [
        (statement.sid or statement.actions[0], part)
        for index, statement in enumerate(role_statements)
        for part, wider in widened(statement)
        if (statement.sid, part) not in EQUIVALENT_WHEN_WIDENED
        and not any(
            allowed(requests, (*role_statements[:index], wider, *role_statements[index + 1 :]))
            for requests in forbidden
        )
    ]
    assert not undetected


def test_a_denied_call_fails_as_in_ec2_and_changes_nothing(targets: Targets) -> None:
    key = credentials("provisioner")
    ec2 = boto3.client("ec2", aws_access_key_id=key.access_key, aws_secret_access_key=key.secret_key)
    with pytest.raises(ClientError) as refused:
        ec2.terminate_instances(InstanceIds=[targets.node])
    assert refused.value.response["Error"]["Code"] == "UnauthorizedOperation"
    assert "ec2:TerminateInstances" in refused.value.response["Error"]["Message"]
    (instance,) = boto3.client("ec2").describe_instances(InstanceIds=[targets.node])["Reservations"][0]["Instances"]
    assert instance["State"]["Name"] in {"pending", "running"}


def test_allowed_calls_take_effect(targets: Targets) -> None:
    key = credentials("lifecycle")
    ec2 = boto3.client("ec2", aws_access_key_id=key.access_key, aws_secret_access_key=key.secret_key)
    ec2.create_tags(Resources=[targets.node], Tags=[{"Key": "Name", "Value": "default-abc"}])
    tags = boto3.client("ec2").describe_tags(Filters=[{"Name": "resource-id", "Values": [targets.node]}])["Tags"]
    assert {"Name": "default-abc", **OWNED}.items() <= {tag["Key"]: tag["Value"] for tag in tags}.items()
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        ec2.create_tags(Resources=[targets.untagged], Tags=tag_list(OWNED))


def test_every_queue_can_be_polled_and_every_failure_kept(targets: Targets) -> None:
    """Lambda's own calls with a function's role: without them it rejects the event source, or drops the event."""
    at = targets.cloud.enforcement.context
    for source in targets.cloud.deployed.event_source_mappings:
        caller = targets.cloud.functions.named(source.function_name).short_name
        for action in ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"):
            request = iam_policies.Request(action=action, resource=source.queue_arn)
            assert iam_policies.allows(request, identity=statements(targets, caller)), (caller, action)
    undelivered = at.arn("sqs", targets.queue("UndeliveredQueueUrl").rsplit("/", 1)[-1])
    for caller in ALL:
        request = iam_policies.Request(action="sqs:SendMessage", resource=undelivered)
        assert iam_policies.allows(request, identity=statements(targets, caller)), caller


def test_an_unlisted_call_is_an_error(targets: Targets) -> None:
    with pytest.raises(iam_actions.UnknownCallError, match="ec2:DeleteVpc"):
        iam_actions.requests("ec2", "DeleteVpc", {}, targets.cloud.enforcement.context)
