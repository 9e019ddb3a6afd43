"""Every scenario against what Karpenter decided on it: right by the judge, no dearer, no more errors."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cli import simulate
from shared.scheduling.schedule import schedule

if TYPE_CHECKING:
    from types import ModuleType

FOLDER = Path(__file__).parents[3] / "shared" / "scenarios"
DEARER = {
    # Karpenter leaves two of three pods without a place here; ours places all three, and more pods cost more.
    "110-self-anti-zone",
}
BIGGEST = 2000

if not (FOLDER / "index.json").exists():
    pytest.skip("the scenarios are not beside this checkout", allow_module_level=True)


def _module(name: str, path: Path) -> ModuleType:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


checker = _module("scheduling_checker", Path(__file__).with_name("checker.py"))
compose = _module("scenario_compose", FOLDER / "compose.py")
INDEX = json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))


def _decide(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    raw = compose.compose(str(FOLDER / f"{name}.json.gz"))
    document = simulate.Document()
    simulate._add(document, raw, name)
    asked = simulate.question(document, now=datetime(2026, 11, 21, tzinfo=UTC))
    return raw, json.loads(json.dumps(simulate.answer(schedule(asked.problem), asked.refused)))


def _rows() -> list[Any]:
    """Every scenario; those that the judge takes ten seconds and more for are long."""
    return [
        pytest.param(r, id=str(r["name"]), marks=[pytest.mark.long] if r["pendingPods"] > BIGGEST else [])
        for r in INDEX
    ]


@pytest.mark.parametrize("row", _rows())
def test_a_scenario_is_decided_rightly_and_no_dearer_than_karpenter(row: dict[str, Any]) -> None:
    raw, answer = _decide(row["name"])
    golden = row["golden"]
    assert checker.check(raw, answer) == []
    assert len(answer["errors"]) <= len(golden["errors"])
    assert checker.preferences_met(raw, answer) >= golden["preferences"][0]
    price = sum(c["cheapest"]["price"] for c in answer["nodeClaims"])
    if row["name"] in DEARER:
        assert len(answer["errors"]) < len(golden["errors"])
    else:
        assert price <= golden["price"][0] * (1 + 1e-9)


def test_the_prices_of_all_scenarios_are_well_below_karpenters() -> None:
    ratios = []
    for row in INDEX:
        if row["pendingPods"] > 1000 or not row["golden"]["price"][1]:
            continue
        _, answer = _decide(row["name"])
        ratios.append(math.log(sum(c["cheapest"]["price"] for c in answer["nodeClaims"]) / row["golden"]["price"][1]))
    assert math.exp(sum(ratios) / len(ratios)) <= 0.93
