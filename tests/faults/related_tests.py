"""Which test files are likely to notice a fault: those that import its module, then those named like it or its room."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.checkout_copy import CHECKOUT

if TYPE_CHECKING:
    from tests.faults.fault import Fault

_FOLDERS = ("unit", "integration", "infra", "conformance", "e2e")
"""The folders of tests, the quickest first."""
_SAY_LITTLE = frozenset({
    "shared", "functions", "tests", "test", "unit", "integration", "e2e", "py", "init", "main", "controller", "handler",
    "command", "api", "local", "cli", "state", "rules", "results", "kubernetes", "and", "of", "a", "the", "that", "if",
    "not", "in", "or", "for", "none", "self", "get", "now", "key", "name", "value", "kind", "spec", "status", "return",
    "metadata", "claim", "node", "pod",
})  # fmt: skip


def related_tests(fault: Fault, *, most: int) -> list[str]:
    """At most that many test files, the likeliest first."""
    path = Path(fault.file)
    module = ".".join(path.with_suffix("").parts)
    words = _words(fault.file) | _words(fault.before)
    imports = _import_of(module)
    scored = {
        name: (10 * bool(imports.search(text)) + 2 * len(words & _words(name)), -_FOLDERS.index(folder))
        for name, (folder, text) in _test_files().items()
    }
    likely = [name for name, (score, _) in scored.items() if score]
    return sorted(likely, key=lambda name: (scored[name], name), reverse=True)[:most]


def _import_of(module: str) -> re.Pattern[str]:
    parent, _, stem = module.rpartition(".")
    direct = rf"from {re.escape(module)} import|import {re.escape(module)}\b"
    of_parent = rf"from {re.escape(parent)} import [^\n]*\b{re.escape(stem)}\b" if parent else "$^"
    return re.compile(f"{direct}|{of_parent}")


def _words(name: str) -> frozenset[str]:
    """The words of a path, without a plural's s."""
    return frozenset(word.rstrip("s") for word in re.findall(r"[a-z]+", name.lower()) if word not in _SAY_LITTLE)


@functools.cache
def _test_files() -> dict[str, tuple[str, str]]:
    """By path, the folder and the text of each test file."""
    return {
        path.relative_to(CHECKOUT).as_posix(): (folder, path.read_text(encoding="utf-8"))
        for folder in _FOLDERS
        for path in sorted((CHECKOUT / "tests" / folder).rglob("test_*.py"))
        if not path.is_relative_to(CHECKOUT / "tests/unit/code")
    }
