"""docs/scale.md says what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.scale import cost, pictures, results
from bench.scale.invocations import FUNCTIONS, saved_results
from bench.scale.karpenter_watches import NODE_BYTES, POD_BYTES, REPLICAS, received

PAGE = (Path(__file__).parents[4] / "docs" / "scale.md").read_text(encoding="utf-8")
FIGURES = {"seconds": 1.0, "silences": 0.05, "log_bytes": 0}


@pytest.mark.parametrize("table", [results.requests_table, results.invocations_table, results.cost_table])
def test_the_page_has_the_measured_tables(table: object) -> None:
    assert callable(table)
    assert table() in PAGE


@pytest.mark.parametrize("picture", pictures.of(saved_results()), ids=lambda picture: picture.name)
def test_the_pictures_are_of_the_measured_figures(picture: pictures.Picture) -> None:
    assert (pictures.IMAGES / f"scale-{picture.name}.svg").read_text(encoding="utf-8") == pictures.draw(picture)
    assert f"images/scale-{picture.name}.svg" in PAGE


@pytest.mark.parametrize("function", FUNCTIONS)
def test_all_sizes_were_measured(function: str) -> None:
    for nodes in (100, 1_000, 5_000, 15_000):
        assert saved_results()[nodes][function]["idle"]["requests"]


def test_billed_time_is_processor_time_at_the_share_of_the_size_and_waiting() -> None:
    proof = {"watch pods, until its bookmark": {"requests": 1.0}}
    requests = {"watch nodes": {"requests": 1.0}, "list pods": {"requests": 8.0}, **proof}
    figures = {**FIGURES, "requests": requests, "calls": {"ec2 CreateFleet": 1.0, "dynamodb Query": 1.0}}
    waiting = 10 * 0.010 + 2 * 0.030 + 2.0 + 0.05 + 300 / 5_000 + 1.625
    assert cost.billed_seconds("disruption", figures, 5_000) == pytest.approx(1769 / 885 + waiting)
    figures_of_15_000 = cost.billed_seconds("disruption", figures, 15_000)
    assert figures_of_15_000 == pytest.approx(1 + waiting - 300 / 5_000 + 300 / 15_000), "a whole vCPU"


def test_karpenter_receives_each_report_and_each_change_of_a_pod() -> None:
    idle, busy = received(1_000, 50_000, busy=False), received(1_000, 50_000, busy=True)
    assert idle.bytes_an_hour == REPLICAS * 12_000 * NODE_BYTES
    assert busy.bytes_an_hour - idle.bytes_an_hour == REPLICAS * 1_000 * 8 * POD_BYTES
