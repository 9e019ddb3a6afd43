"""What README and docs/why.md say in figures is what was measured, for each load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
README, WHY, RESULTS = ((CHECKOUT / path).read_text() for path in ("README.md", "docs/why.md", "bench/RESULTS.md"))


def measured(load: str, figure: str) -> tuple[int, int]:
    """The least and the most of a week's seeds, in percent of Karpenter's rules."""
    (row,) = re.findall(
        rf"^\| {load}: {figure}, relative to Karpenter's rules \|[^|]*\|([^|]*)\|", RESULTS, re.MULTILINE
    )
    shares = [float(share) for share in re.findall(r"([\d.]+)%", row)]
    assert len(shares) == 3
    return int(min(shares) + 0.5), int(max(shares) + 0.5)


@pytest.mark.parametrize(("load", "stated"), [("services", "services"), ("batch", "batch"), ("gpus", "GPUs")])
def test_the_readme_has_the_figures_of_each_load(load: str, stated: str) -> None:
    (row,) = re.findall(rf"^\| a week of {stated}\b[^|]*\|([^|]*)\|$", README, re.MULTILINE)
    dollars, moved = measured(load, "dollars"), measured(load, "voluntarily moved pods")
    assert row.strip() == "{}-{} % of the dollars, {}-{} % of the moved pods".format(*dollars, *moved)


def test_packing_is_called_cheaper_only_where_it_is() -> None:
    without_gpus = [share for load in ("services", "batch") for share in measured(load, "dollars")]
    assert min(without_gpus) >= 100, "the pages below may say that Tenon is cheaper"
    assert WHY.count("up to 2 %") == 2
    assert max(without_gpus) - 100 == 2
    for page in (README, WHY):
        assert "cheaper packing" not in page


def test_the_page_of_karpenters_interruptions_is_named() -> None:
    row = next(line for line in WHY.splitlines() if line.startswith("| spot interruptions |"))
    assert "in parallel](https://karpenter.sh/v1.15/concepts/disruption/#interruption)" in row
