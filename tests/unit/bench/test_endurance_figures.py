"""The figures of the endurance benchmark: what grew, and by how much memory follows the number of invocations."""

from __future__ import annotations

from bench.endurance import warm_memory, week


def test_what_has_become_more_is_named_with_both_numbers() -> None:
    before = {"rows": 100, "nodes": 3, "S3 bytes": 68_781}
    after = {"rows": 160, "nodes": 3, "S3 bytes": 68_790, "volumes": 1}
    assert week.grown(before, after) == {"rows": "100 → 160", "S3 bytes": "68,781 → 68,790", "volumes": "0 → 1"}
    assert week.grown(before, after, share=0.1, least=5) == {"rows": "100 → 160"}


def test_growth_is_that_of_the_second_half_whatever_the_order() -> None:
    measured = {
        "10000": {"mib": 107.5, "blocks": 1_300.0},
        "1000": {"mib": 90.0, "blocks": 1_000.0},
        "5000": {"mib": 107.0, "blocks": 1_250.0},
    }
    assert warm_memory.growth(measured) == (0.5, 50.0)
