"""Every recorded scenario: the decision satisfies all rules, costs no more than Karpenter's and has no more errors."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.scenarios import checker, recorded, simulation

MORE_EXPENSIVE = {
    # Karpenter schedules one of three pods here, Tenon all three: more pods cost more.
    "110-self-anti-zone",
}
BIGGEST = 2000


def _decide(row: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    raw = recorded.raw(row)
    return raw, simulation.decide(simulation.simulation_input(raw))


def _rows() -> list[Any]:
    """Every scenario; those that take the checker ten seconds or more are long."""
    return [
        pytest.param(r, id=str(r["name"]), marks=[pytest.mark.long] if r["pendingPods"] > BIGGEST else [])
        for r in recorded.INDEX
    ]


@pytest.mark.parametrize("row", _rows())
def test_a_scenario_satisfies_all_rules_and_costs_no_more_than_karpenter(row: dict[str, Any]) -> None:
    raw, answer = _decide(row)
    golden = row["golden"]
    assert checker.check(raw, answer) == []
    assert len(answer["errors"]) <= len(golden["errors"])
    assert checker.preferences_met(raw, answer) >= golden["preferences"][0]
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
        _, answer = _decide(row)
        ratios.append(math.log(sum(c["cheapest"]["price"] for c in answer["nodeClaims"]) / row["golden"]["price"][1]))
    assert math.exp(sum(ratios) / len(ratios)) <= 0.93
