"""The worked example of docs/scheduling.md, by running it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli import problem_files
from shared.scheduling.scheduler import schedule

if TYPE_CHECKING:
    from shared.scheduling.decision import Decision

ROOT = Path(__file__).parents[3]
PAGE = " ".join((ROOT / "docs/scheduling.md").read_text(encoding="utf-8").split())


@pytest.fixture(scope="module")
def decision() -> Decision:
    documents = problem_files.read([ROOT / "docs/examples/scheduling.yaml"])
    return schedule(problem_files.simulation_input(documents, now=datetime(2026, 11, 22, tzinfo=UTC)).problem)


def test_the_page_lists_the_new_nodes(decision: Decision) -> None:
    for claim in decision.new_node_claims:
        cheapest, pods = claim.cheapest, ", ".join(key.removeprefix("shop/") for key in claim.pods)
        listed = len(claim.instance_types)
        assert f"| {cheapest.instance_type} | {cheapest.zone} | {cheapest.price:.4f} | {listed} | {pods} |" in PAGE
    price = sum(claim.cheapest.price for claim in decision.new_node_claims)
    assert f"Three nodes for {price:.4f} USD/h" in PAGE
    assert len(decision.new_node_claims) == 3


def test_the_page_names_the_pods_on_existing_nodes(decision: Decision) -> None:
    assert dict(decision.existing_nodes) == {"node-1": ("shop/web-3", "shop/web-6")}
    assert "`web-3` and `web-6` go to `node-1`" in PAGE


def test_the_page_quotes_the_explanation(decision: Decision) -> None:
    assert list(decision.pod_errors) == ["shop/report"]
    assert f'"{decision.pod_errors["shop/report"].message}"' in PAGE
