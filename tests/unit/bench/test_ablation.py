"""The ablation: a pass is left out where it is called, and comes back; prices of fewer pods aren't compared."""

from __future__ import annotations

import pkgutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench import ablation
from bench.ablation import PASSES, Figures
from cli import problem_files
from shared.scheduling.scheduler import schedule

EXAMPLE = Path(__file__).parents[3] / "docs/examples/scheduling.yaml"


def _price_of_the_example() -> float:
    simulation = problem_files.simulation_input(problem_files.read([EXAMPLE]), now=datetime(2026, 11, 22, tzinfo=UTC))
    return sum(c.cheapest.price for c in schedule(simulation.problem).new_node_claims)


@pytest.mark.parametrize("left_out", PASSES, ids=lambda p: p.name)
def test_a_pass_is_replaced_by_its_identity_for_a_while(left_out: ablation.Pass) -> None:
    original = pkgutil.resolve_name(left_out.at)
    with left_out.left_out():
        assert pkgutil.resolve_name(left_out.at) is left_out.identity
    assert pkgutil.resolve_name(left_out.at) is original
    assert left_out.lines() > 0


def test_without_local_search_the_worked_example_costs_what_packing_plans() -> None:
    with ablation.BY_NAME["local search"].left_out():
        assert round(_price_of_the_example(), 4) == 0.3622
    assert round(_price_of_the_example(), 4) == 0.3411


def test_prices_are_compared_only_where_as_many_pods_have_a_node() -> None:
    full = Figures(prices={"a": 1.0, "b": 2.0, "c": 4.0}, without_node={"a": 0, "b": 0, "c": 1}, seconds=2.0)
    without = Figures(prices={"a": 1.1, "b": 1.0, "c": 3.8}, without_node={"a": 0, "b": 3, "c": 1}, seconds=1.0)
    cells = [cell.strip() for cell in ablation.row("local search", full, without).split("|")]
    assert cells[3:10] == ["-2.00%", "+2.23%", "1, 1", "+10.00% (a)", "3 in 1", "-", "0.50"]
