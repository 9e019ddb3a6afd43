"""Resource policies of queues, functions, the event bus and the bucket: nobody else may use them from outside."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from local.aws import iam_policies
from local.aws.iam_policies import Request, Statement
from tests.infra.resolved_template import resolved

Select = Callable[[str], dict[str, dict[str, Any]]]
EVENTS = "service:events.amazonaws.com"
FOREIGN = "arn:aws:iam::999999999999:root"
OWN = "arn:aws:iam::123456789012:role/somebody"
EVERYTHING = iam_policies.parse({"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
"""The policy of an administrator: what a resource's own policy still refuses is refused to everybody."""


@pytest.fixture(scope="module")
def queue_policies(of_type: Select) -> dict[str, tuple[Statement, ...]]:
    """Each queue's own policy, by its logical id."""
    statements: dict[str, tuple[Statement, ...]] = dict.fromkeys(of_type("AWS::SQS::Queue"), ())
    for policy in of_type("AWS::SQS::QueuePolicy").values():
        for queue in policy["Queues"]:
            statements[queue["Ref"]] += iam_policies.parse(resolved(policy["PolicyDocument"]))
    return statements


def sent(queue: str, *, by: str, secure: bool = True, source: str = "") -> Request:
    context = {"aws:SecureTransport": [str(secure).lower()]}
    if source:
        context |= {"aws:SourceArn": [source], "aws:SourceAccount": [source.split(":")[4]]}
    return Request(action="sqs:SendMessage", resource=f"{queue}.Arn", principal=by, context=context)


def rule_arn(rule: Mapping[str, Any]) -> str:
    bus = "tenon-demo/" if "EventBusName" in rule else ""
    return f"arn:aws:events:us-east-1:123456789012:rule/{bus}{rule['Name']}"


def feeding(of_type: Select, queue: str) -> set[str]:
    """The ARNs of the rules that lead to a queue, at once or when they fail."""
    return {
        rule_arn(rule)
        for rule in of_type("AWS::Events::Rule").values()
        for target in rule["Targets"]
        if queue in (target["Arn"]["Fn::GetAtt"][0], target["DeadLetterConfig"]["Arn"]["Fn::GetAtt"][0])
    }


def test_a_queue_only_accepts_messages_of_its_rules(
    queue_policies: Mapping[str, tuple[Statement, ...]], of_type: Select
) -> None:
    rules = {rule_arn(rule) for rule in of_type("AWS::Events::Rule").values()}
    by_bus = {rule: rule.count("/") for rule in rules}
    strangers = {
        "arn:aws:events:us-east-1:999999999999:rule/tenon-demo.health",
        "arn:aws:events:us-east-1:123456789012:rule/mine",
        "arn:aws:events:us-east-1:123456789012:rule/tenon-demo-2.health",
        "arn:aws:events:us-east-1:123456789012:rule/tenon-demo-2/tenon-demo-2.deleting",
        "arn:aws:events:eu-west-1:123456789012:rule/tenon-demo.health",
    }
    for queue, policy in queue_policies.items():
        let_in = {
            r for r in rules | strangers if iam_policies.allows(sent(queue, by=EVENTS, source=r), resource=policy)
        }
        fed = feeding(of_type, queue)
        # A policy has one statement, for all of the cluster's rules on a bus.
        assert let_in == {rule for rule in rules if by_bus[rule] in {by_bus[r] for r in fed}}
        assert fed <= let_in
        assert not iam_policies.allows(sent(queue, by=EVENTS), resource=policy)
        assert not iam_policies.allows(sent(queue, by="service:sns.amazonaws.com"), resource=policy)


def test_other_accounts_can_not_use_the_queues(
    queue_policies: Mapping[str, tuple[Statement, ...]],
) -> None:
    for queue, policy in queue_policies.items():
        for action in ("SendMessage", "ReceiveMessage", "DeleteMessage", "PurgeQueue", "SetQueueAttributes"):
            request = Request(
                action=f"sqs:{action}",
                resource=f"{queue}.Arn",
                principal=FOREIGN,
                context={"aws:SecureTransport": ["true"]},
            )
            assert not iam_policies.allows(request, identity=EVERYTHING, resource=policy, same_account=False)


def test_plain_http_is_denied_to_administrators_too(
    queue_policies: Mapping[str, tuple[Statement, ...]],
) -> None:
    # What functions read takes messages of the stack's own senders only (test_infra_queues.py).
    assert any(iam_policies.allows(sent(q, by=OWN), identity=EVERYTHING, resource=p) for q, p in queue_policies.items())
    for queue, policy in queue_policies.items():
        assert not iam_policies.allows(sent(queue, by=OWN, secure=False), identity=EVERYTHING, resource=policy)
        rule = "arn:aws:events:us-east-1:123456789012:rule/tenon-demo.health"
        assert not iam_policies.allows(sent(queue, by=EVENTS, secure=False, source=rule), resource=policy)


def test_the_catalog_bucket_only_allows_this_account_with_tls(of_type: Select) -> None:
    (policy,) = of_type("AWS::S3::BucketPolicy").values()
    statements = iam_policies.parse(resolved(policy["PolicyDocument"]))
    for action in ("s3:GetObject", "s3:PutObject"):

        def request(principal: str, secure: str, version: str, action: str = action) -> Request:
            return Request(
                action=action,
                resource="StateCatalog.Arn/x".replace("StateCatalog", policy["Bucket"]["Ref"]),
                principal=principal,
                context={"aws:SecureTransport": [secure], "s3:TlsVersion": [version]},
            )

        assert iam_policies.allows(request(OWN, "true", "1.3"), identity=EVERYTHING, resource=statements)
        assert not iam_policies.allows(request(OWN, "false", "1.2"), identity=EVERYTHING, resource=statements)
        assert not iam_policies.allows(request(OWN, "true", "1.1"), identity=EVERYTHING, resource=statements)
        foreign = request(FOREIGN, "true", "1.3")
        assert not iam_policies.allows(foreign, identity=EVERYTHING, resource=statements, same_account=False)


def test_only_rules_of_the_stack_invoke_a_function(of_type: Select) -> None:
    rules = {f"{id_}.Arn" for id_ in of_type("AWS::Events::Rule")}
    for permission in of_type("AWS::Lambda::Permission").values():
        assert permission["Principal"] == "events.amazonaws.com"
        assert resolved(permission["SourceArn"]) in rules
    assert not of_type("AWS::Lambda::Url")


def test_the_event_bus_allows_no_other_account_and_rules_match_known_sources(of_type: Select) -> None:
    assert not of_type("AWS::Events::EventBusPolicy")  # without one, a bus is its own account's
    for rule in of_type("AWS::Events::Rule").values():
        if "EventBusName" in rule:
            # PutEvents in another's name is refused to each of our roles (tests/integration/least_privilege)
            assert rule["EventPattern"]["source"] in (["tenon.relay"], ["tenon.functions"])
