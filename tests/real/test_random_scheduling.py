"""Random pods on random nodes: the embedded scheduler and Tenon's solver decide as the real one does, node by node.

``python -m tests.real.differential --placements 2000`` does the same for as long as it is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.real.differential.input_comparisons import PlacementComparison

if TYPE_CHECKING:
    from tests.real.scheduling import RealCluster

SEEDS = range(2)
PLACEMENTS_EACH = 96


def test_the_solver_and_the_embedded_scheduler_place_pods_as_the_real_one(real: RealCluster) -> None:
    comparison = PlacementComparison(real)
    real.clear()

    assert [str(finding) for seed in SEEDS for finding in comparison.findings(seed)] == []
    assert comparison.tally.judged == len(SEEDS) * PLACEMENTS_EACH
    assert comparison.tally.judged / 20 < comparison.tally.accepted < comparison.tally.judged * 0.8
