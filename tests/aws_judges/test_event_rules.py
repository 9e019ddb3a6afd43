"""Every rule of every stack, judged by EventBridge's rule engine on AWS's sample events and near misses of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shared.base.struct import with_fields
from tests.aws_judges.option_sets import STACKS
from tests.aws_judges.rule_engine import Rule, local_matches, matches, rules_of
from tests.aws_judges.sample_events import SAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

PATTERNS_BY_STACK = {"no option": 12, "all options": 17, "shadow mode": 0}
"""How many rules have a pattern, so that none is left out of the judgement."""


def patterns(rules: Sequence[Rule]) -> dict[str, Mapping[str, Any]]:
    return {rule.name: rule.pattern for rule in rules}


def wrong(engine: Path, rules: Sequence[Rule]) -> list[str]:
    """The samples that match other rules of their bus than they have to."""
    bus_of = {rule.name: rule.bus for rule in rules}
    answer = matches(engine, patterns(rules), [sample.event for sample in SAMPLES])
    problems = [f"{name}: {reason}" for name, reason in answer.refused.items()]
    for sample, matched in zip(SAMPLES, answer.by_event, strict=True):
        on_bus = {name for name in matched if bus_of[name] == sample.bus}
        expected = sample.rules & bus_of.keys()
        if on_bus != expected:
            problems.append(f"{sample.name}: matched by {sorted(on_bus)}, not {sorted(expected)}")
    return problems


@pytest.mark.parametrize("stack", STACKS)
def test_rules_match_the_events_that_they_are_for(
    stack: str, rule_engine: Path, judged: Callable[[str, int], None]
) -> None:
    rules = rules_of(STACKS[stack])
    assert len(rules) == PATTERNS_BY_STACK.get(stack, 12)
    judged("event patterns", len(rules))
    judged("pairs of an event and a pattern", len(rules) * len(SAMPLES))
    assert wrong(rule_engine, rules) == []


def test_every_rule_is_matched_by_a_sample() -> None:
    names = {rule.name for rule in rules_of(STACKS["all options"])}
    assert names == frozenset().union(*(sample.rules for sample in SAMPLES))


def test_the_local_event_bridge_matches_the_same(rule_engine: Path, judged: Callable[[str, int], None]) -> None:
    all_patterns = patterns(rules_of(STACKS["all options"]))
    events = [sample.event for sample in SAMPLES]
    judged("sample events and near misses", len(events))
    answer = matches(rule_engine, all_patterns, events)
    differences = [
        f"{sample.name}: {sorted(theirs)} there, {sorted(ours)} here"
        for sample, theirs, ours in zip(SAMPLES, answer.by_event, local_matches(all_patterns, events), strict=True)
        if theirs != ours
    ]
    assert differences == []


def replaced(rules: Sequence[Rule], name: str, pattern: Mapping[str, Any]) -> list[Rule]:
    """The rules, with another pattern for that one."""
    assert name in patterns(rules)
    return [with_fields(rule, pattern=pattern) if rule.name == name else rule for rule in rules]


SEEDED = (
    ("spot-interruption", {"source": ["aws.ec2"]}, "EC2's EC2 Fleet Error: matched by ['spot-interruption'"),
    ("rebalance", {"detail-type": ["EC2 Instance Rebalance Recommendation"]}, "rebalance_recommendation from com"),
    ("health", {"source": ["aws.health"], "detail": {"service": ["EC2"]}}, "health event of category issue"),
    ("health", {"source": ["aws.health"], "detail": {"service": "EC2"}}, "health: "),
    ("state-change", {"source": ["aws.ec2"], "detail": {"state": ["terminated"]}}, "an instance is stopping"),
    ("nodes-changed", {"source": ["tenon.relay"], "detail-type": ["Nodes Changed"]}, "hint Nodes Changed of 'other'"),
    (
        "deleting",
        {"source": ["tenon.relay"], "detail-type": ["Nodes Deleting"]},
        "hint Drains Unblocked: matched by []",
    ),
)


@pytest.mark.parametrize(("rule", "pattern", "named"), SEEDED)
def test_a_wrong_pattern_is_noticed(
    rule: str, pattern: Mapping[str, Any], named: str, rule_engine: Path, judged: Callable[[str, int], None]
) -> None:
    broken = replaced(rules_of(STACKS["no option"]), rule, pattern)
    assert [problem for problem in wrong(rule_engine, broken) if problem.startswith(named)]
    judged("seeded faults that were noticed", 1)
