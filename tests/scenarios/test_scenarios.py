"""Every recorded scenario: the decision satisfies all rules, costs no more than Karpenter's and has no more errors."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest

from tests.scenarios import checker, recorded, simulation

MORE_EXPENSIVE = {
    # Karpenter schedules one of three pods here, Tenon all three: more pods cost more.
    "110-self-anti-zone",
}
BIGGEST = 2000
ROWS = {str(row["name"]): row for row in recorded.INDEX}


@functools.cache
def _decision(name: str) -> dict[str, Any]:
    """The decision of a scenario; the mean of prices is that of decisions which are checked one by one, too."""
    return simulation.decide(simulation.simulation_input(recorded.raw(ROWS[name])))


def _rows() -> list[Any]:
    """Every scenario; those that take the checker ten seconds or more are long."""
    return [
        pytest.param(r, id=str(r["name"]), marks=[pytest.mark.long] if r["pendingPods"] > BIGGEST else [])
        for r in recorded.INDEX
    ]


@pytest.mark.parametrize("row", _rows())
def test_a_scenario_satisfies_all_rules_and_costs_no_more_than_karpenter(row: dict[str, Any]) -> None:
    raw, answer, golden = recorded.raw(row), _decision(row["name"]), row["golden"]
    violations, preferences = checker.violations_and_preferences(raw, answer)
    assert violations == []
    assert len(answer["errors"]) <= len(golden["errors"])
    assert preferences >= golden["preferences"][0]
    price = sum(c["cheapest"]["price"] for c in answer["nodeClaims"])
    if row["name"] in MORE_EXPENSIVE:
        assert len(answer["errors"]) < len(golden["errors"])
    else:
        assert price <= golden["price"][0] * (1 + 1e-9)


def test_the_prices_of_all_scenarios_are_well_below_karpenters_in_the_mean() -> None:
    ratios = []
    for row in recorded.INDEX:
        if row["pendingPods"] > 1000 or not row["golden"]["price"][1]:
            continue
        answer = _decision(row["name"])
        ratios.append(math.log(sum(c["cheapest"]["price"] for c in answer["nodeClaims"]) / row["golden"]["price"][1]))
    assert math.exp(sum(ratios) / len(ratios)) <= 0.93
