"""IAM's decision, by the rules of its "policy evaluation logic" and of its condition operators."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws

from local.aws.iam_enforcement import role_statements
from local.aws.iam_policies import PolicyError, Request, allows, parse

QUEUE = "arn:aws:sqs:us-east-1:123456789012:work"


def statement(effect: str = "Allow", **more: Any) -> dict[str, Any]:
    return {"Effect": effect, "Action": "sqs:SendMessage", "Resource": QUEUE, **more}


def may(*statements: dict[str, Any], action: str = "sqs:SendMessage", resource: str = QUEUE, **context: str) -> bool:
    keys = {key.replace("_", ":", 1): value.split(",") for key, value in context.items()}
    request = Request(action=action, resource=resource, context=keys)
    return allows(request, identity=parse({"Statement": list(statements)}))


def test_requests_are_denied_by_default() -> None:
    assert not may()
    assert may(statement())
    assert not may(statement(), action="sqs:DeleteQueue")
    assert not may(statement(), resource=f"{QUEUE}2")


def test_a_deny_statement_takes_precedence() -> None:
    assert not may(statement(), statement("Deny"))
    assert not may(statement("Deny"), statement())


def test_actions_are_case_insensitive_and_resources_are_not() -> None:
    assert may(statement(Action="SQS:sendmessage"))
    assert not may(statement(Resource=QUEUE.upper()))


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("*", True),
        (f"{QUEUE[:-2]}*", True),
        (f"{QUEUE[:-1]}?", True),
        (f"{QUEUE}?", False),
        (f"{QUEUE[:-1]}[k]", False),
    ],
)
def test_only_iams_wildcards_are_supported(pattern: str, fits: bool) -> None:  # noqa: FBT001 - a table's column
    assert may(statement(Resource=pattern)) == fits


def test_a_condition_fails_for_a_missing_key() -> None:
    condition = {"StringEquals": {"aws:RequestTag/team": "a"}}
    assert not may(statement(Condition=condition))
    assert may(statement(Condition=condition), **{"aws_RequestTag/team": "a"})
    assert not may(statement(Condition=condition), **{"aws_RequestTag/team": "b"})
    assert may(statement(Condition={"StringEqualsIfExists": {"aws:RequestTag/team": "a"}}))
    assert may(statement(Condition={"Null": {"aws:RequestTag/team": "true"}}))
    assert may(statement(Condition={"StringNotEquals": {"aws:RequestTag/team": "a"}}))


def test_all_conditions_must_hold_and_one_of_a_keys_values() -> None:
    both = {"StringEquals": {"a:x": ["1", "2"], "a:y": "3"}}
    assert may(statement(Condition=both), a_x="2", a_y="3")
    assert not may(statement(Condition=both), a_x="2", a_y="4")


def test_for_all_values_holds_for_none_and_for_any_value_does_not() -> None:
    every = {"ForAllValues:StringEquals": {"aws:TagKeys": ["Name", "Team"]}}
    assert may(statement(Condition=every))
    assert may(statement(Condition=every), aws_TagKeys="Name")
    assert not may(statement(Condition=every), aws_TagKeys="Name,Owner")
    any_value = {"ForAnyValue:StringEquals": {"aws:TagKeys": "Name"}}
    assert not may(statement(Condition=any_value))
    assert may(statement(Condition=any_value), aws_TagKeys="Name,Owner")


def test_unsupported_policy_elements_are_errors() -> None:
    with pytest.raises(PolicyError, match="DateLessThan"):
        may(statement(Condition={"DateLessThan": {"aws:CurrentTime": "2026"}}))
    with pytest.raises(PolicyError, match="NotAction"):
        parse({"Statement": [{"Effect": "Allow", "NotAction": "sqs:*", "Resource": "*"}]})


@pytest.mark.parametrize(
    ("principal", "same_account", "let_in"),
    [
        ("service:events.amazonaws.com", True, True),
        ("service:sns.amazonaws.com", True, False),
        ("arn:aws:iam::999999999999:root", False, False),
    ],
)
def test_a_resource_policy_allows_its_principals(principal: str, same_account: bool, let_in: bool) -> None:  # noqa: FBT001 - a table's columns
    policy = parse({"Statement": [statement(Principal={"Service": "events.amazonaws.com"})]})
    request = Request(action="sqs:SendMessage", resource=QUEUE, principal=principal)
    own = parse({"Statement": [statement()]}) if not principal.startswith("service") else ()
    assert allows(request, identity=own, resource=policy, same_account=same_account) == let_in


values = st.lists(st.sampled_from(["a", "b", "c"]), max_size=3)


@given(st.lists(st.tuples(st.sampled_from(["Allow", "Deny"]), values), max_size=5), values)
def test_more_denials_never_allow_more(statements: list[tuple[str, list[str]]], held: list[str]) -> None:
    def statement_of(effect: str, wanted: list[str]) -> dict[str, Any]:
        return statement(effect, Condition={"ForAnyValue:StringEquals": {"a:x": wanted}})

    context: dict[str, str] = {"a_x": ",".join(held)} if held else {}
    everything = may(*(statement_of(*each) for each in statements), **context)
    without = may(*(statement_of(*each) for each in statements if each[0] == "Allow"), **context)
    assert without or not everything


def test_a_key_with_several_values_matches_with_a_set_operator_alone() -> None:
    of_relay = {"events:source": "tenon.relay"}
    assert not may(statement(Condition={"StringEquals": of_relay}), events_source="tenon.relay")
    for_all = statement(Condition={"ForAllValues:StringEquals": of_relay})
    assert may(for_all, events_source="tenon.relay")
    assert not may(for_all, events_source="tenon.relay,aws.ec2")


def test_policies_of_the_account_that_are_attached_to_a_role_count() -> None:
    # The CDK puts what an inline policy has no room for into such policies.
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement()]})
    with mock_aws():
        iam = boto3.client("iam")
        iam.create_role(RoleName="role", AssumeRolePolicyDocument="{}")
        iam.put_role_policy(RoleName="role", PolicyName="inline", PolicyDocument=document)
        arn = iam.create_policy(PolicyName="overflow", PolicyDocument=document)["Policy"]["Arn"]
        iam.attach_role_policy(RoleName="role", PolicyArn=arn)
        assert len(role_statements("role")) == 2
