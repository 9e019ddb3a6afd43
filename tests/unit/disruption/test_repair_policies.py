"""Which conditions make a node unhealthy, when that is tolerated no longer, and what is done then."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest

from shared.api.kubernetes import Node, NodeStatus
from shared.api.meta import Condition, ObjectMeta
from shared.disruption.command import REBOOT, REPLACE
from shared.disruption.repair_policies import (
    POLICIES,
    RepairDecision,
    RepairPolicy,
    repair_decision,
    repair_matches,
)

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def node(*conditions: Condition, age: timedelta = DAY) -> Node:
    return Node(
        metadata=ObjectMeta(name="n", creation_timestamp=NOW - age), status=NodeStatus(conditions=[*conditions])
    )


def since(ago: timedelta | None, type_: str, status: str = "False", reason: str = "") -> Condition:
    time = None if ago is None else NOW - ago
    return Condition(type=type_, status=status, reason=reason, last_transition_time=time)


def decide(unhealthy: Node, policies: tuple[RepairPolicy, ...] = POLICIES) -> RepairDecision | None:
    return repair_decision(repair_matches(unhealthy, policies), now=NOW)


def decided(unhealthy: Node, policies: tuple[RepairPolicy, ...] = POLICIES) -> RepairDecision:
    decision = decide(unhealthy, policies)
    assert decision is not None
    return decision


@pytest.mark.parametrize(
    ("type_", "status", "reason", "toleration", "drain", "action"),
    [
        ("Ready", "False", "KubeletNotReady", 30, 10, REPLACE),
        ("Ready", "Unknown", "NodeStatusUnknown", 30, 10, REPLACE),
        ("AcceleratedHardwareReady", "False", "NvidiaXID48Error", 10, 5, REBOOT),
        ("AcceleratedHardwareReady", "False", "NvidiaXID79Error", 10, 5, REPLACE),
        ("AcceleratedHardwareReady", "False", "DCGMError", 30, 10, REPLACE),
        ("AcceleratedHardwareReady", "False", "", 30, 10, REPLACE),
        ("StorageReady", "False", "", 30, 10, REPLACE),
        ("NetworkingReady", "False", "", 30, 10, REPLACE),
        ("KernelReady", "False", "", 30, 10, REPLACE),
        ("ContainerRuntimeReady", "False", "", 30, 10, REPLACE),
    ],
)
def test_the_conditions_of_kubelets_and_of_the_node_monitoring_agent(
    type_: str, status: str, reason: str, toleration: int, drain: int, action: str
) -> None:
    early = node(since(minutes(toleration) - timedelta(seconds=1), type_, status, reason))
    assert repair_matches(early)
    assert decide(early) is None
    decision = decided(node(since(minutes(toleration), type_, status, reason)))
    assert (decision.action, decision.grace_period) == (action, minutes(drain))
    assert decision.condition.type == type_


@pytest.mark.parametrize(
    "condition",
    [
        since(DAY, "Ready", "True"),
        since(DAY, "KernelReady", "Unknown"),
        since(DAY, "MemoryPressure", "True"),
        since(DAY, "MemoryPressure", "False"),
    ],
    ids=str,
)
def test_other_conditions_are_healthy(condition: Condition) -> None:
    assert repair_matches(node(condition)) == ()


def test_a_toleration_counts_from_the_creation_of_the_node_at_the_earliest() -> None:
    for ago in (DAY, None):
        assert decide(node(since(ago, "Ready"), age=minutes(29))) is None
        assert decided(node(since(ago, "Ready"), age=minutes(31))).eligible_at == NOW - minutes(1)


def test_a_toleration_counts_again_from_a_given_time() -> None:
    matches = repair_matches(node(since(DAY, "KernelReady")))
    assert repair_decision(matches, now=NOW, not_before=NOW - minutes(29)) is None
    assert repair_decision(matches, now=NOW, not_before=NOW - minutes(30)) is not None


def test_the_table_has_one_fallback_which_replaces_and_its_expressions_are_valid() -> None:
    (fallback,) = [p for p in POLICIES if not p.reason]
    assert fallback.action == REPLACE
    assert [re.compile(p.reason).pattern for p in POLICIES] == [p.reason for p in POLICIES]
    assert all(0 <= p.priority <= 100 and p.toleration >= timedelta() for p in POLICIES)


FAST = RepairPolicy(type="A", reason="^x$", toleration=minutes(1), grace_period=None, priority=10, action=REBOOT)
SLOW = RepairPolicy(type="B", toleration=minutes(20), grace_period=minutes(7), priority=5)
HIGH = RepairPolicy(type="C", toleration=minutes(5), grace_period=minutes(9), priority=90)
REST = RepairPolicy(type="D", reason="", toleration=minutes(40), priority=0)
TABLE = (FAST, SLOW, HIGH, REST)


def test_a_reason_is_searched_for_and_the_fallback_applies_to_all_types_of_the_table() -> None:
    assert decided(node(since(minutes(2), "A", reason="x")), TABLE).action == REBOOT
    unmatched = node(since(minutes(39), "A", reason="xy"))
    assert [m.policy for m in repair_matches(unmatched, TABLE)] == [REST]
    assert decide(unmatched, TABLE) is None
    assert decided(node(since(minutes(41), "A", reason="xy")), TABLE).action == REPLACE


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_the_policies_of_a_node_are_merged_whatever_the_order_of_its_conditions(order: tuple[int, ...]) -> None:
    conditions = (since(minutes(61), "A", reason="x"), since(minutes(30), "B"), since(minutes(6), "C"))
    decision = decided(node(*(conditions[i] for i in order)), TABLE)
    assert decision.action == REPLACE
    assert decision.condition.type == "C"  # the higher priority of the two that replace
    assert decision.grace_period == minutes(7)
    assert decision.score == pytest.approx(2 + 2)  # rank 2 of priority 10, and 60 minutes


def test_among_equals_the_earlier_condition_is_the_cause_then_the_first_by_name() -> None:
    both = node(since(minutes(60), "StorageReady"), since(minutes(60), "KernelReady"))
    assert decided(both).condition.type == "KernelReady"
    later = node(since(minutes(61), "StorageReady"), since(minutes(60), "KernelReady"))
    assert decided(later).condition.type == "StorageReady"


def test_a_policy_without_a_grace_period_leaves_the_drain_to_the_nodeclaim() -> None:
    assert decided(node(since(minutes(2), "A", reason="x")), TABLE).grace_period is None


def test_half_an_hour_is_worth_a_rank() -> None:
    waits = decided(node(since(minutes(20) + minutes(31), "B")), TABLE)
    new = decided(node(since(minutes(1), "A", reason="x")), TABLE)
    assert waits.score > new.score > decided(node(since(minutes(20) + minutes(29), "B")), TABLE).score


def test_the_message_names_the_condition_its_reason_and_the_toleration() -> None:
    decision = decided(node(since(DAY, "Ready", "Unknown", "NodeStatusUnknown")))
    assert decision.message == "condition Ready has been Unknown (NodeStatusUnknown) for 0:30:00"
