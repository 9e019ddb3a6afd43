"""What a month costs, from what was counted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench import list_prices, office_hours
from bench.cost_model import HOURS, MEASURED, PHASE_HOURS, Month, snapshots
from infra import function_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping


def _measured(count: float) -> Mapping[str, Mapping[str, float]]:
    return {phase: {"minutes": 15.0, "provisioner invocations": count} for phase in PHASE_HOURS}


def test_the_phasees_of_a_month_are_the_whole_month() -> None:
    assert sum(PHASE_HOURS.values()) == HOURS


def test_counts_of_a_quarter_of_an_hour_are_multiplied_by_four() -> None:
    assert Month({100: _measured(15)}).count("provisioner invocations") == pytest.approx(15 * 4 * HOURS)


def test_a_phase_that_was_not_measured_lies_on_the_line_through_the_two_largest() -> None:
    whole = _measured(100)
    month = Month({10: _measured(10), 20: _measured(20), 100: {s: whole[s] for s in whole if s != "evening"}})
    assert month.extrapolated == ["evening"]
    assert month.count("provisioner invocations") == pytest.approx(100 * 4 * HOURS)


def test_a_longer_measurement_of_the_same_costs_the_same() -> None:
    longer = {phase: {name: 4 * value for name, value in counts.items()} for phase, counts in _measured(15).items()}
    for_a_quarter, for_an_hour = Month({100: _measured(15)}), Month({100: longer})
    assert for_an_hour.count("provisioner invocations") == pytest.approx(for_a_quarter.count("provisioner invocations"))


def test_the_decision_about_snapshots_has_the_figures_that_follow_from_sizes_and_prices() -> None:
    page = (Path(__file__).parents[2] / "docs" / "designs" / "cost.md").read_text(encoding="utf-8")
    (decision,) = (" ".join(part.split()) for part in page.split("\n## ") if part.startswith("SnapStart"))
    month = Month(office_hours.saved_results())
    kept, restored, saved = snapshots()
    each = list_prices.SNAPSHOT_GB_SECOND.usd
    memory = sum(function_sizes.SIZES[name].memory for name in MEASURED)
    total = sum(line.usd for line in month.lines())
    for figure in (
        f"{memory:,} MiB",
        f"{memory / 1024:.2f} GiB × {HOURS * 3600:,} s × USD {each:.10f} = USD {kept.usd:.2f}",
        f"USD {restored.usd:.2f}",
        f"USD {-saved.usd:.2f}",
        f"2,190 of {sum(month.count(f'{name} invocations') for name in MEASURED):,.0f}",
        f"USD {total:.2f}",
    ):
        assert figure in decision, figure
    assert kept.usd + restored.usd + saved.usd > total


def test_every_price_names_aws_page_and_its_source_or_is_marked_as_unverified() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cost-model.md").read_text(encoding="utf-8")
    for price in list_prices.ALL:
        assert price.page.startswith("aws.amazon.com/")
        assert f"| {price.unit} | {price.page} | {price.seen or 'not verified'} |" in page
