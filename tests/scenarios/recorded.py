"""The scenarios with Karpenter's own results; where they don't lie beside the checkout, their tests are left out."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "shared" / "scenarios"

if not (FOLDER / "index.json").exists():
    pytest.skip("the scenarios are not beside this checkout", allow_module_level=True)

INDEX: list[dict[str, Any]] = json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))
"""A row a scenario: its name, file, pending pods, and what Karpenter decided."""


def raw(row: dict[str, Any]) -> dict[str, Any]:
    """The scenario as one document, put together by the program that comes with them."""
    name = "scenario_compose"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, FOLDER / "compose.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    found: dict[str, Any] = sys.modules[name].compose(str(FOLDER / row["file"]))
    return found
