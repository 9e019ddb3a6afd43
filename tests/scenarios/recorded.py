"""The recorded scenarios: a cluster and its pending pods each, with what Karpenter decided (data/README.md)."""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "data"

INDEX: list[dict[str, Any]] = json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))
"""A row a scenario: its name, file, pending pods, and what Karpenter decided."""

_ONLY_FOR_READERS = frozenset({"name", "tags", "note"})


def raw(row: dict[str, Any]) -> dict[str, Any]:
    """The scenario joined with its catalog, as one document that ``tenon simulate`` reads."""
    scenario = _read(FOLDER / row["file"])
    document = {key: value for key, value in scenario.items() if key not in _ONLY_FOR_READERS}
    if "catalog" in document:
        document["instanceTypes"] = _instance_types(document.pop("catalog"))
    document.setdefault("options", {})
    return document


def _read(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
    return document


@functools.lru_cache(maxsize=16)
def _instance_types(catalog: str) -> list[dict[str, Any]]:
    types: list[dict[str, Any]] = _read(FOLDER / "catalogs" / f"{catalog}.json.gz")["instanceTypes"]
    return types
