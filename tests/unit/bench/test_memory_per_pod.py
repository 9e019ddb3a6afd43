"""The memory of first invocations stays near what was recorded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench import function_resources

RESULTS = (Path(__file__).parents[3] / "bench" / "RESULTS.md").read_text()
NODES, PODS = function_resources.CLUSTERS[0]


@pytest.mark.parametrize("function", function_resources.GROWING)
def test_a_first_invocation_takes_at_most_half_more_than_recorded(function: str) -> None:
    row = next(
        row for row in RESULTS.splitlines() if row.startswith(f"| {function}, {NODES:,} nodes / {PODS:,} pods |")
    )
    recorded = re.findall(r"([\d.]+) KiB a pod", row)
    assert len(recorded) == 1
    measured = function_resources.in_new_process(function, NODES, PODS)
    assert 0.5 < function_resources.kib_per_pod(measured, PODS) <= 1.5 * float(recorded[0])
