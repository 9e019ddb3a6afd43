"""Each import of a shipped package is of a distribution that pyproject.toml declares for it, not of another's."""

from __future__ import annotations

import ast
import importlib.metadata
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from infra import installation
from tests.unit.code import source

if TYPE_CHECKING:
    from collections.abc import Iterator

SHIPPED = ("cli", "functions", "infra", "local", "relay", "shared")
_ALL = ("demo", "deploy", "docs", "export", "dev")
EXTRAS = {
    "cli": ("export",),
    "functions": ("deploy",),
    "shared": ("deploy",),
    "infra": ("deploy",),
    "local": ("demo",),
    "bench": _ALL,
    "docs": _ALL,
    "distribution": _ALL,
}
"""The extras in addition to the plain dependencies, by package; what isn't shipped may need those of developers."""


def _project() -> dict[str, list[str]]:
    project = tomllib.loads((source.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"": project["dependencies"], **project["optional-dependencies"]}


def _declared(package: str) -> set[str]:
    groups = _project()
    texts = [text for group in ("", *EXTRAS.get(package, ())) for text in groups[group]]
    return {canonicalize_name(Requirement(text).name) for text in texts}


def _imports(node: ast.AST) -> Iterator[str]:
    """The top-level names that are imported when the code runs."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                for branch in child.orelse:
                    yield from _imports(ast.Module(body=[branch], type_ignores=[]))
            case ast.Import():
                yield from (alias.name.partition(".")[0] for alias in child.names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]
            case _:
                yield from _imports(child)


@pytest.mark.parametrize("package", source.PACKAGES)
def test_imports_are_declared(package: str) -> None:
    providers = importlib.metadata.packages_distributions()
    declared = _declared(package)
    undeclared = {
        f"{source.name(path)} imports {name}"
        for path in source.modules(package)
        for name in set(_imports(source.syntax(path))) - sys.stdlib_module_names - set(source.PACKAGES)
        if not {canonicalize_name(d) for d in providers.get(name, ())} & declared
    }
    assert undeclared == set()


def test_shipped_packages_are_those_of_the_wheel_and_import_no_others() -> None:
    setuptools = tomllib.loads((source.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert setuptools["packages"]["find"]["include"] == [f"{package}*" for package in SHIPPED]
    others = set(source.PACKAGES) - set(SHIPPED)
    for path in source.modules(*SHIPPED):
        assert not set(_imports(source.syntax(path))) & {*others, "tests"}, source.name(path)


def test_every_plain_dependency_is_imported_or_read() -> None:
    data = {"tzdata"}  # zoneinfo reads it
    providers = importlib.metadata.packages_distributions()
    imported = {
        canonicalize_name(distribution)
        for path in source.modules(*SHIPPED)
        for name in _imports(source.syntax(path))
        for distribution in providers.get(name, ())
    }
    assert {canonicalize_name(Requirement(text).name) for text in _project()[""]} - imported == data


def test_each_dependency_has_its_reason_next_to_it() -> None:
    section = (source.ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("\ndependencies = [")[2]
    lines = section.partition("\n[project.scripts]")[0].splitlines()
    bare = [
        line
        for before, line in zip(["", *lines], lines, strict=False)
        if line.startswith('    "') and "#" not in line and not before.strip().startswith("#")
    ]
    assert bare == ['    "tenon-eks[demo,deploy,docs,export]",']


def test_the_modules_that_stand_for_an_extra_are_all_of_its_distributions() -> None:
    """So that a command never fails inside because a part of its extra isn't installed."""
    providers = importlib.metadata.packages_distributions()
    groups = _project()
    for extra, modules in installation.EXTRAS.items():
        declared = {canonicalize_name(Requirement(text).name) for text in groups[extra]}
        named = {canonicalize_name(name) for module in modules for name in providers[module]}
        assert declared - named <= {"aws-cdk-lambda-layer-kubectl-v34"}, extra  # a part of the module aws_cdk
        assert named & declared, extra
