"""Which modules and third-party packages a function needs: read from its source, so that bundles follow the code.

The walk starts at the function's own modules and follows imports into ``shared``; imports inside functions count,
those for the type checker don't. Code that builds module names at run time would not be seen; ours doesn't.
"""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OURS = ("functions", "shared")


class MissingModuleError(LookupError):
    """A module of ours imports one of ours that is not there; the text names both."""


def reached(checkout: Path, function: str) -> dict[str, Path]:
    """Our modules that the function's code can import, its own among them, and their files.

    Raises:
        MissingModuleError: the code could not even start.
    """
    left = [_name(checkout, path) for path in sorted((checkout / "functions" / function).rglob("*.py"))]
    found: dict[str, Path] = {}
    while left:
        module = left.pop()
        path = _file(checkout, module)
        if module in found or path is None:
            continue
        found[module] = path
        for imported, names in _imports(path):
            parts = imported.split(".")
            if parts[0] not in OURS:
                continue
            if _file(checkout, imported) is None and not checkout.joinpath(*parts).is_dir():
                raise MissingModuleError(f"{module} imports {imported}, which is not there")
            # what is imported from a package may be a module or a value
            parents = (".".join(parts[: i + 1]) for i in range(len(parts)))
            left += [*parents, *(f"{imported}.{name}" for name in names)]
    return found


def third_party(checkout: Path, function: str) -> frozenset[str]:
    """The top-level packages, neither ours nor Python's, that the function's code can import.

    Raises:
        MissingModuleError: the code could not even start.
    """
    tops = {
        imported.partition(".")[0] for path in reached(checkout, function).values() for imported, _ in _imports(path)
    }
    return frozenset(tops.difference(OURS, sys.stdlib_module_names))


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
    """Each module that is imported, with what is imported from it."""
    left: list[ast.AST] = [ast.parse(path.read_text(), filename=str(path))]
    while left:
        node = left.pop()
        if isinstance(node, ast.If) and _is_type_checking(node.test):
            left += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, tuple(alias.name for alias in node.names)
        left += ast.iter_child_nodes(node)


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )
