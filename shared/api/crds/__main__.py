"""Writes the definitions into this folder: ``python -m shared.api.crds``."""

from __future__ import annotations

from pathlib import Path

from shared.api.crds.definitions import DEFINITIONS
from shared.api.crds.files import text

for definition in DEFINITIONS:
    (Path(__file__).parent / definition.file).write_text(text(definition), encoding="utf-8")
