from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLES = Path(__file__).parent / "samples"


@pytest.fixture
def sample() -> Callable[[str], dict[str, Any]]:
    """AWS's documented sample of an event type, by the name of its parser's module."""

    def load(name: str) -> dict[str, Any]:
        event: dict[str, Any] = json.loads((SAMPLES / f"{name}.json").read_text())
        return event

    return load
