"""Figures that are measured one by one, each for long, and saved as JSON for the parts of RESULTS.md."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def read(path: Path) -> dict[str, Any]:
    """The figures; none if nothing was saved so far."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write(path: Path, figures: Mapping[str, Any], *, sort_keys: bool = False) -> None:
    """Save all figures, in their order or in that of their keys."""
    text = json.dumps(figures, indent=1, ensure_ascii=False, sort_keys=sort_keys)
    path.write_text(text + "\n", encoding="utf-8")
