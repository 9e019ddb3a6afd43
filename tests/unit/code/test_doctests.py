"""The examples in docstrings hold: each is run, and the modules that a newcomer reads first have some."""

from __future__ import annotations

import doctest
import importlib
from typing import TYPE_CHECKING

import pytest

from tests.unit.code.source import ROOT, modules

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = ("shared", "functions", "infra", "relay")
MIN_EXAMPLES = 30
"""Functions, methods and classes with an example."""


def _with_examples() -> list[str]:
    """The modules, by name, that have examples; the others aren't imported."""
    paths = (path for package in PACKAGES for path in modules(package))
    return [_name(path) for path in paths if ">>> " in path.read_text(encoding="utf-8")]


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _examples(module: str) -> list[doctest.DocTest]:
    """The docstrings of the module that have examples."""
    tests = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module), module)
    return [test for test in tests if test.examples]


@pytest.mark.parametrize("module", _with_examples())
def test_examples_in_docstrings_hold(module: str) -> None:
    runner = doctest.DocTestRunner(verbose=False)
    tests = _examples(module)
    assert tests
    output: list[str] = []
    for test in tests:
        runner.run(test, out=output.append)
    assert "".join(output) == ""


def test_functions_that_are_read_first_have_examples() -> None:
    assert sum(len(_examples(module)) for module in _with_examples()) >= MIN_EXAMPLES
