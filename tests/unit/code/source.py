"""The repository's own Python files, as the tests about its code read them."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = ("bench", "cli", "distribution", "docs", "functions", "infra", "local", "relay", "shared")


def modules(*packages: str) -> list[Path]:
    """The Python files of these top-level folders, sorted."""
    return sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))


def name(path: Path) -> str:
    """The path from the repository's root, as pages and messages write it."""
    return path.relative_to(ROOT).as_posix()


@functools.cache
def syntax(path: Path) -> ast.Module:
    """The file's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"))
