"""Every role of every stack, judged by an IAM engine: it is allowed what its function calls, and nothing else."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from tests.aws_judges.iam_engine import BEYOND, Policies, Verdict, verdicts_of
from tests.aws_judges.option_sets import STACKS
from tests.aws_judges.simulated_calls import JudgedStack, SimulatedCall, deployed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

Answers = list[tuple[SimulatedCall, list[Verdict]]]


def answers(engine: Path, policies: Policies, calls: Sequence[SimulatedCall]) -> Answers:
    """What the engine says of each request of each call."""
    requests = [(call.caller, request) for call in calls for request in call.requests]
    verdicts = iter(verdicts_of(engine, policies, requests))
    return [(call, [next(verdicts) for _ in call.requests]) for call in calls]


def wrong(judged: Answers) -> list[str]:
    """The calls that the engine allows though they must be denied, or the other way round."""
    return [
        f"{call} must be {'allowed' if call.expected else 'denied'}"
        for call, verdicts in judged
        if not all(request.action in BEYOND for request in call.requests)
        if all(v.allowed for r, v in zip(call.requests, verdicts, strict=True) if r.action not in BEYOND)
        != call.expected
    ]


@pytest.mark.parametrize("stack", STACKS)
def test_roles_are_allowed_their_calls_and_nothing_else(
    stack: str, iam_engine: Path, judged: Callable[[str, int], None]
) -> None:
    with deployed(stack) as judged_stack:
        of_stack = answers(iam_engine, judged_stack.policies, judged_stack.calls)
    pairs = [
        (call, request, ours, verdict)
        for call, verdicts in of_stack
        for request, ours, verdict in zip(call.requests, call.ours, verdicts, strict=True)
        if request.action not in BEYOND
    ]
    judged("stacks whose policies were judged", 1)
    judged("calls simulated by the IAM engine", len(of_stack))
    judged("IAM requests of them", len(pairs))
    assert wrong(of_stack) == []
    real = [(request, verdict) for call, request, _, verdict in pairs if not call.is_fabricated]
    assert [f"{request}: {verdict.error}" for request, verdict in real if verdict.error] == []
    assert [f"{request}: no key {verdict.ignored}" for request, verdict in real if verdict.ignored] == []
    # Where the local IAM answers otherwise, it is wrong.
    assert [f"{call}, {request}: {v}" for call, request, ours, v in pairs if ours != v.allowed] == []


@pytest.fixture(scope="module")
def stack_with_all_options() -> Iterator[JudgedStack]:
    with deployed("all options") as judged_stack:
        yield judged_stack


def without_condition(statement: dict[str, Any]) -> None:
    del statement["Condition"]


def without_right(statement: dict[str, Any]) -> None:
    statement["Action"] = "ec2:DescribeTags"


def on_everything(statement: dict[str, Any]) -> None:
    statement["Resource"] = "*"


def with_every_action(statement: dict[str, Any]) -> None:
    statement["Action"] = statement["Action"].partition(":")[0] + ":*"


def without_set_operator(statement: dict[str, Any]) -> None:
    statement["Condition"] = {"StringEquals": {"events:source": "tenon.functions"}}


SEEDED = (
    ("termination", "TerminateOwned", without_condition, "termination: terminate another cluster's node"),
    ("termination", "TerminateOwned", without_right, "termination: terminate a node must be allowed"),
    ("lifecycle", "TagOwnInstances", without_condition, "lifecycle: take an instance into the cluster"),
    ("provisioner", "PassNodeRoles", on_everything, "provisioner: launch with a role that isn't the nodes'"),
    ("provisioner", "PutHints", without_set_operator, "provisioner: say a hint must be allowed"),
    ("lifecycle", "DeleteOwnTemplates", without_condition, "lifecycle: delete another's template"),
    ("disruption", "WakeUpLater", with_every_action, "disruption: purge DisruptionQueueUrl"),
    ("catalog", "WriteCatalog", on_everything, "catalog: write another bucket"),
)


@pytest.mark.parametrize(("role", "sid", "fault", "named"), SEEDED)
def test_a_broken_statement_is_noticed(
    role: str,
    sid: str,
    fault: Callable[[dict[str, Any]], None],
    named: str,
    iam_engine: Path,
    stack_with_all_options: JudgedStack,
    judged: Callable[[str, int], None],
) -> None:
    broken = copy.deepcopy(stack_with_all_options.policies[role])
    (statement,) = (s for document in broken for s in document["Statement"] if s.get("Sid") == sid)
    fault(statement)
    calls = [call for call in stack_with_all_options.calls if call.caller == role]
    assert [text for text in wrong(answers(iam_engine, {role: broken}, calls)) if text.startswith(named)]
    judged("seeded faults that were noticed", 1)
