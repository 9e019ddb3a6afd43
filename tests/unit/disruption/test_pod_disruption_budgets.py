"""Which pods the eviction API lets go, by their state, their budget's and its policy for unready pods."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from shared.api.kubernetes import Pod, PodDisruptionBudget
from shared.base.struct import with_fields
from shared.disruption.pod_disruption_budgets import PodDisruptionBudgets

NOW = datetime(2026, 11, 25, 9, tzinfo=UTC)


def pod(phase: str = "Running", *, ready: bool = True, deleted: bool = False, app: str = "shop") -> Pod:
    raw = {
        "metadata": {
            "name": "shop-7",
            "namespace": "store",
            "labels": {"app": app},
            "deletionTimestamp": NOW.isoformat() if deleted else None,
        },
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }
    return msgspec.convert(raw, Pod)


def budget(name: str = "shop", *, healthy: int = 3, desired: int = 3, **spec: Any) -> PodDisruptionBudget:
    raw = {
        "metadata": {"name": name, "namespace": "store"},
        "spec": {"selector": {"matchLabels": {"app": "shop"}}, **spec},
        "status": {"disruptionsAllowed": 0, "currentHealthy": healthy, "desiredHealthy": desired},
    }
    return msgspec.convert(raw, PodDisruptionBudget)


@pytest.mark.parametrize(
    ("member", "goes"),
    [
        (pod(), False),
        (pod("Unknown"), False),
        (pod("Pending"), True),
        (pod("Succeeded"), True),
        (pod("Failed", ready=False), True),
        (pod(deleted=True), True),
        (pod(app="other"), True),
    ],
    ids=["running", "unknown", "pending", "succeeded", "failed", "terminating", "other"],
)
@pytest.mark.parametrize("count", [1, 2])
def test_a_pod_that_does_not_run_goes_whatever_its_budgets_say(member: Pod, count: int, *, goes: bool) -> None:
    budgets = PodDisruptionBudgets([budget(f"shop-{i}") for i in range(count)])
    assert (budgets.eviction_blocker(member) is None) == goes


@pytest.mark.parametrize("policy", [None, "IfHealthyBudget", "AlwaysAllow"])
@pytest.mark.parametrize(
    ("healthy", "desired", "is_enough"), [(3, 3, True), (4, 3, True), (2, 3, False), (0, 0, False), (1, 0, False)]
)
def test_an_unready_pod_goes_while_enough_others_are_healthy(
    policy: str | None, healthy: int, desired: int, *, is_enough: bool
) -> None:
    spec = {} if policy is None else {"unhealthyPodEvictionPolicy": policy}
    budgets = PodDisruptionBudgets([budget(healthy=healthy, desired=desired, **spec)])
    goes = is_enough or policy == "AlwaysAllow"
    assert (budgets.eviction_blocker(pod(ready=False)) is None) == goes
    assert budgets.eviction_blocker(pod()) is not None


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        (None, False),
        ({}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Near", "values": ["shop"]}]}, False),
    ],
    ids=["none", "empty", "invalid"],
)
def test_a_budget_without_selector_or_with_an_invalid_one_covers_no_pod(
    selector: dict[str, Any] | None, *, selects: bool
) -> None:
    budgets = PodDisruptionBudgets([budget(selector=selector)])
    assert (budgets.eviction_blocker(pod()) is not None) == selects


def test_pods_that_take_nothing_from_a_budget_move_together() -> None:
    budgets = PodDisruptionBudgets([budget()])
    assert budgets.allow_together([[pod("Pending")], [pod("Pending")], [pod()]])
    assert not budgets.allow_together([[pod()], [pod()]])


def test_a_budget_whose_last_change_is_not_evaluated_yet_lets_no_ready_pod_go() -> None:
    changed = budget(name="changed")
    metadata = with_fields(changed.metadata, generation=2)
    status = with_fields(changed.status, disruptions_allowed=3, observed_generation=1)
    stale = with_fields(changed, metadata=metadata, status=status)
    evaluated = with_fields(stale, status=with_fields(status, observed_generation=2))

    blocker = PodDisruptionBudgets([stale]).eviction_blocker(pod())

    assert blocker is not None
    assert "changed blocks the eviction" in blocker.message
    assert "isn't evaluated yet" in blocker.message
    assert PodDisruptionBudgets([evaluated]).eviction_blocker(pod()) is None
    assert not PodDisruptionBudgets([stale]).allow_together([[pod()], [pod()]])
