"""The queues of the stack."""

from collections.abc import Callable
from typing import Any

import pytest

from infra import function_sizes
from infra.cluster import resource_names
from tests.infra.resolved_template import resolved

Select = Callable[[str], dict[str, dict[str, Any]]]
RULES_ON_THE_BUS = "arn:aws:events:us-east-1:123456789012:rule/tenon-demo/"
Functions = dict[str, tuple[str, dict[str, Any]]]


def fed(of_type: Select) -> dict[str, str]:
    """The logical id of the function that each queue feeds."""
    return {
        mapping["EventSourceArn"]["Fn::GetAtt"][0]: mapping["FunctionName"]["Ref"]
        for mapping in of_type("AWS::Lambda::EventSourceMapping").values()
    }


def test_every_queue_has_a_dead_letter_queue_of_its_type_after_five_receives(
    of_type: Select,
) -> None:
    all_queues = of_type("AWS::SQS::Queue")
    feeding = fed(of_type)
    assert len(feeding) == 4
    dead = set()
    for id_ in feeding:
        policy = all_queues[id_]["RedrivePolicy"]
        assert policy["maxReceiveCount"] == 5
        target = policy["deadLetterTargetArn"]["Fn::GetAtt"][0]
        assert all_queues[target].get("FifoQueue") == all_queues[id_].get("FifoQueue")
        dead.add(target)
    assert len(dead) == 4
    assert not dead & set(feeding)


def test_every_queue_is_encrypted_and_requires_tls(of_type: Select) -> None:
    denied = set()
    for policy in of_type("AWS::SQS::QueuePolicy").values():
        for statement in policy["PolicyDocument"]["Statement"]:
            if statement["Effect"] == "Deny" and statement.get("Sid") != "DenyOthers":
                assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
                assert statement["Principal"] == {"AWS": "*"}
                assert statement["Action"] == "sqs:*"
                denied |= {queue["Ref"] for queue in policy["Queues"]}
    assert denied == set(of_type("AWS::SQS::Queue"))
    assert all(queue["SqsManagedSseEnabled"] for queue in of_type("AWS::SQS::Queue").values())


def test_queue_policies_only_allow_rules_of_this_stack_by_one_statement(of_type: Select) -> None:
    fed_by_rules = set()
    for policy in of_type("AWS::SQS::QueuePolicy").values():
        allowed = [s for s in policy["PolicyDocument"]["Statement"] if s["Effect"] == "Allow"]
        assert len(allowed) <= 1
        for statement in allowed:
            assert statement["Principal"] == {"Service": "events.amazonaws.com"}
            assert statement["Action"] == "sqs:SendMessage"
            assert statement["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
            for rule in resolved(statement["Condition"]["ArnLike"]["aws:SourceArn"]):
                assert rule.startswith(("arn:aws:events:us-east-1:123456789012:rule/tenon-demo.", RULES_ON_THE_BUS))
            fed_by_rules |= {queue["Ref"] for queue in policy["Queues"]}
    assert len(fed_by_rules) == 5


def test_nobody_else_of_the_account_may_send_to_a_queue_that_functions_read(of_type: Select) -> None:
    """Only the stack's rules, and the functions whose own policy allows it, whatever other principals' policies say."""
    senders: dict[str, set[str]] = {}
    for policy in of_type("AWS::IAM::Policy").values():
        for statement in policy["PolicyDocument"]["Statement"]:
            if statement["Action"] == "sqs:SendMessage":
                queue = statement["Resource"]["Fn::GetAtt"][0]
                senders.setdefault(queue, set()).update(role["Ref"] for role in policy["Roles"])
    denied = {}
    for policy in of_type("AWS::SQS::QueuePolicy").values():
        statements = {s.get("Sid", ""): s for s in policy["PolicyDocument"]["Statement"]}
        if "DenyOthers" not in statements:
            continue
        (queue,) = (queue["Ref"] for queue in policy["Queues"])
        denial = statements["DenyOthers"]
        assert (denial["Effect"], denial["Action"], denial["Principal"]) == ("Deny", "sqs:SendMessage", {"AWS": "*"})
        rules = statements["AllowRules"]["Condition"]["ArnLike"]["aws:SourceArn"]
        assert denial["Condition"]["ArnNotLike"] == {"aws:SourceArn": rules}
        roles = denial["Condition"].get("ArnNotEquals", {}).get("aws:PrincipalArn", [])
        denied[queue] = {role["Fn::GetAtt"][0] for role in (roles if isinstance(roles, list) else [roles])}
    read = {m["EventSourceArn"]["Fn::GetAtt"][0] for m in of_type("AWS::Lambda::EventSourceMapping").values()}
    assert denied == {queue: senders.get(queue, set()) for queue in read}


def test_visibility_timeouts_are_six_function_timeouts(of_type: Select, functions: Functions) -> None:
    """Except interruption's, which is one: a warning must be received again while its instance still runs."""
    timeouts = {id_: properties["Timeout"] for id_, properties in functions.values()}
    factors = dict.fromkeys(timeouts, 6) | {functions["interruption"][0]: 1}
    for queue, function in fed(of_type).items():
        assert of_type("AWS::SQS::Queue")[queue]["VisibilityTimeout"] >= factors[function] * timeouts[function]


def test_only_the_provisioning_queue_is_fifo(of_type: Select, functions: Functions) -> None:
    feeding = {function: queue for queue, function in fed(of_type).items()}
    for name in (
        function_sizes.PROVISIONER,
        function_sizes.DISRUPTION,
        function_sizes.TERMINATION,
        function_sizes.INTERRUPTION,
    ):
        queue = of_type("AWS::SQS::Queue")[feeding[functions[name][0]]]
        assert queue.get("FifoQueue", False) == (name == function_sizes.PROVISIONER)
        assert queue.get("ContentBasedDeduplication", False) == (name == function_sizes.PROVISIONER)


def test_interruption_messages_expire_soon_after_the_instance_is_gone(of_type: Select, functions: Functions) -> None:
    feeding = {function: queue for queue, function in fed(of_type).items()}
    assert (
        of_type("AWS::SQS::Queue")[feeding[functions[function_sizes.INTERRUPTION][0]]]["MessageRetentionPeriod"] == 300
    )


def test_dead_letters_have_the_maximum_retention(of_type: Select) -> None:
    feeding = set(fed(of_type))
    for id_, queue in of_type("AWS::SQS::Queue").items():
        if id_ not in feeding:
            assert queue["MessageRetentionPeriod"] == 14 * 86400


@pytest.mark.parametrize("cluster", ["demo", "a" * 43, "a" * 44, "x" * 100])
def test_names_have_a_valid_length_for_any_cluster(cluster: str) -> None:
    name = resource_names.queue(cluster, "provisioning-dead-letters", fifo=True)
    assert len(name) <= 80
    assert name.endswith(".fifo")
    assert len(resource_names.function(cluster, "interruption")) <= 64


def test_long_cluster_names_with_the_same_prefix_have_different_queues() -> None:
    first, second = (resource_names.queue("x" * 99 + end, "provisioning", fifo=True) for end in "12")
    assert first != second
