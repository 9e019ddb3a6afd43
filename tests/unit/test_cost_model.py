"""What a month costs, from what was counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.cost_model import HOURS, STRETCH_HOURS, Month

if TYPE_CHECKING:
    from collections.abc import Mapping


def _measured(count: float) -> Mapping[str, Mapping[str, float]]:
    return {stretch: {"minutes": 15.0, "provisioner invocations": count} for stretch in STRETCH_HOURS}


def test_the_stretches_of_a_month_are_the_whole_month() -> None:
    assert sum(STRETCH_HOURS.values()) == HOURS


def test_what_is_counted_in_a_quarter_of_an_hour_comes_four_times_an_hour() -> None:
    assert Month({100: _measured(15)}).count("provisioner invocations") == pytest.approx(15 * 4 * HOURS)


def test_a_stretch_that_was_not_measured_lies_on_the_line_through_the_two_largest() -> None:
    whole = _measured(100)
    month = Month({10: _measured(10), 20: _measured(20), 100: {s: whole[s] for s in whole if s != "evening"}})
    assert month.reckoned == ["evening"]
    assert month.count("provisioner invocations") == pytest.approx(100 * 4 * HOURS)


def test_a_longer_measurement_of_the_same_costs_the_same() -> None:
    longer = {stretch: {name: 4 * value for name, value in found.items()} for stretch, found in _measured(15).items()}
    for_a_quarter, for_an_hour = Month({100: _measured(15)}), Month({100: longer})
    assert for_an_hour.count("provisioner invocations") == pytest.approx(for_a_quarter.count("provisioner invocations"))
