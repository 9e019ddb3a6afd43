"""The flows that tests/README.md lists are the tests that ``make test`` starts worlds for."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
FLOW = "pytest.mark.flow"


def _listed() -> list[tuple[str, str]]:
    """Each flow's name and its test."""
    section = (TESTS / "README.md").read_text(encoding="utf-8").partition("## Flows")[2]
    return re.findall(r"^\| (.+) \| `(.+)` \|$", section, re.MULTILINE)


def _marked() -> list[str]:
    """The marked tests, ``file.py::test``, and the marked modules, ``file.py``."""
    marked = []
    for path in (TESTS / "e2e").rglob("test_*.py"):
        name = path.relative_to(TESTS / "e2e").as_posix()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            match node:
                case ast.FunctionDef(name=test, decorator_list=marks):
                    marked += [f"{name}::{test}" for mark in marks if ast.unparse(mark) == FLOW]
                case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value) if FLOW in ast.unparse(value):
                    marked.append(name)
    return marked


def test_the_table_lists_every_flow_once_and_nothing_else() -> None:
    assert sorted(test for _, test in _listed()) == sorted(_marked())


def test_each_flow_has_a_name_of_its_own() -> None:
    names = [name for name, _ in _listed()]
    assert len(names) == len(set(names))


def test_worlds_are_started_in_their_own_folder_alone() -> None:
    """Elsewhere they would be part of ``make test`` without being a flow."""
    paths = [
        path for folder in ("unit", "integration", "infra", "scenarios") for path in (TESTS / folder).rglob("*.py")
    ]
    assert [
        path.name
        for path in paths
        if re.search(r"local\.world\S* import .*\bWorld\b", path.read_text(encoding="utf-8"))
    ] == []
