"""The modules and third-party packages that a function needs, by its source, so that bundles follow the code.

It follows imports from the function's own modules into ``shared``. Imports inside functions count; imports under
TYPE_CHECKING don't. Module names that are built at run time would be missed; no code here does that.
"""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIRST_PARTY = ("functions", "relay", "shared")
_DATA = {"zoneinfo": "tzdata"}
"""Packages that modules of the standard library read as data, where the machine has none."""


class MissingModuleError(LookupError):
    """A first-party import doesn't exist; the message names both modules."""


def first_party_modules(checkout: Path, function: str) -> dict[str, Path]:
    """The first-party modules that the function's code can import, with its own, and their files.

    Raises:
        MissingModuleError: the code could not be imported.
    """
    pending = [_name(checkout, path) for path in sorted((checkout / "functions" / function).rglob("*.py"))]
    modules: dict[str, Path] = {}
    while pending:
        module = pending.pop()
        path = _file(checkout, module)
        if module in modules or path is None:
            continue
        modules[module] = path
        pending += _first_party_imports(checkout, module, path)
    return modules


def _first_party_imports(checkout: Path, module: str, path: Path) -> Iterator[str]:
    """The first-party modules and packages that a module may import."""
    for imported, names in _imports(path):
        parts = imported.split(".")
        if parts[0] not in FIRST_PARTY:
            continue
        if _file(checkout, imported) is None and not checkout.joinpath(*parts).is_dir():
            raise MissingModuleError(f"{module} imports {imported}, which does not exist")
        yield from (".".join(parts[: i + 1]) for i in range(len(parts)))
        # a name imported from a package may be a module or a value
        yield from (f"{imported}.{name}" for name in names)


def third_party(checkout: Path, function: str) -> frozenset[str]:
    """The third-party top-level packages that the function's code can import.

    Raises:
        MissingModuleError: the code could not be imported.
    """
    tops = {
        imported.partition(".")[0]
        for path in first_party_modules(checkout, function).values()
        for imported, _ in _imports(path)
    }
    data = {_DATA[top] for top in tops & _DATA.keys()}
    return frozenset(tops.difference(FIRST_PARTY, sys.stdlib_module_names) | data)


def _name(checkout: Path, path: Path) -> str:
    parts = path.relative_to(checkout).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _file(checkout: Path, module: str) -> Path | None:
    base = checkout.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def _imports(path: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each imported module with the names imported from it."""
    pending: list[ast.AST] = [ast.parse(path.read_text(), filename=str(path))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and _is_type_checking(node.test):
            pending += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, tuple(alias.name for alias in node.names)
        pending += ast.iter_child_nodes(node)


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )
