from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.scenarios import checker, simulation

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    Decide = Callable[[dict[str, Any]], dict[str, Any]]

_HERE = Path(__file__).parent


def _load(name: str, path: Path) -> ModuleType:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def clusters() -> ModuleType:
    """The makers of small clusters."""
    return _load("scheduling_small_clusters", _HERE / "small_clusters.py")


def _decide(raw: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    simulated = simulation.simulation_input(raw)
    return simulation.decide(simulated), not simulated.invalid and not simulated.refused


@pytest.fixture(scope="session")
def decide_unchecked() -> Decide:
    """Decides a document with something in it that the judge can't read either."""
    return lambda raw: _decide(raw)[0]


@pytest.fixture(scope="session")
def decide() -> Decide:
    """Decides a document as `tenon simulate` does; the answer is checked, and comes back as plain values."""

    def decide(raw: dict[str, Any]) -> dict[str, Any]:
        answer, readable = _decide(raw)
        if readable:
            assert checker.check(raw, answer) == []
        return answer

    return decide
