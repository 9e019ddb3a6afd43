"""Modules stay short enough to hold in the head, and functions simple enough to follow."""

from __future__ import annotations

from typing import Any

import pytest
from radon.complexity import ComplexityVisitor

from tests.unit.code.source import PACKAGES, modules, name

MOST_LINES = 400
MOST_BRANCHES = 15
LONGER: dict[str, str] = {
    "tests/conformance/kubernetes_api.py": "a script that is copied and run alone against any API server",
}
"""Modules that may be longer, each with the reason."""


@pytest.mark.parametrize("package", [*PACKAGES, "tests"])
def test_no_module_is_longer_than_a_few_hundred_lines(package: str) -> None:
    lengths = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in modules(package)}
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES and path not in LONGER} == {}


def test_every_exception_is_still_needed() -> None:
    lengths = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in modules(*PACKAGES, "tests")}
    assert [path for path in LONGER if lengths.get(path, 0) <= MOST_LINES] == []


@pytest.mark.parametrize("package", [*PACKAGES, "tests"])
def test_no_function_has_more_than_fifteen_paths_through_it(package: str) -> None:
    """Cyclomatic complexity as radon counts it; assertions of tests are not branches."""
    assert {
        f"{name(path)}:{block.lineno} {block.fullname}": block.complexity
        for path in modules(package)
        for block in _functions(path.read_text(encoding="utf-8"))
        if block.complexity > MOST_BRANCHES
    } == {}


def _functions(code: str) -> list[Any]:
    visitor = ComplexityVisitor.from_code(code, no_assert=True)
    methods = [method for cls in visitor.classes for method in cls.methods]
    return [*visitor.functions, *methods]
