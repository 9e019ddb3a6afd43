"""Values have one type: `shared/base/struct.py` says which base when."""

from __future__ import annotations

import ast

from tests.unit.code.source import PACKAGES, modules, name, syntax

DATACLASSES = {
    "cli/cluster/cluster_reference.py": "`tenon --help` imports neither shared nor msgspec",
    "infra/options/stack_options.py": "fields carry their options as metadata",
    "local/kubernetes/kinds.py": "compared by some of its fields",
}
"""Modules with a dataclass, each with the reason."""


def test_only_modules_with_a_reason_have_dataclasses() -> None:
    assert [
        name(path)
        for path in modules(*PACKAGES)
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.ClassDef) and any("dataclass" in _words(d) for d in node.decorator_list)
    ] == sorted(DATACLASSES)


def _words(decorator: ast.expr) -> set[str]:
    return {*ast.unparse(decorator).partition("(")[0].split(".")}
