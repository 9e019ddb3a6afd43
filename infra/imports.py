"""Which third-party packages a function needs: read from its source, so that a bundle can't fall behind the code.

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


def third_party(checkout: Path, function: str) -> frozenset[str]:
    """The top-level packages, neither ours nor Python's, that the function's code can import.

    Raises:
        MissingModuleError: the code could not even start.
    """
    start = [_name(checkout, path) for path in sorted((checkout / "functions" / function).rglob("*.py"))]
    seen: set[str] = set()
    found: set[str] = set()
    left = start
    while left:
        module = left.pop()
        path = _file(checkout, module)
        if module in seen or path is None:
            continue
        seen.add(module)
        for imported, names in _imports(path):
            top = imported.partition(".")[0]
            if top in OURS:
                parts = imported.split(".")
                parents = [".".join(parts[: i + 1]) for i in range(len(parts))]
                if _file(checkout, imported) is None and not checkout.joinpath(*parts).is_dir():
                    raise MissingModuleError(f"{module} imports {imported}, which is not there")
                # what is imported from a package may be a module or a value
                left += [*parents, *(f"{imported}.{name}" for name in names)]
            elif top not in sys.stdlib_module_names:
                found.add(top)
    return frozenset(found)


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
