"""A wheel's packages, moved into one import package: an app may have packages that are called ``infra`` or ``shared``.

In the repository they are at the top level, because bundles have them there. Only imports are rewritten, exactly where
Python's own parser sees them. No module of ours is imported by a name in a string: a build that meets one fails.
What bundles and images are made of is in the wheel twice, the second time as it is in the repository.
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
from pathlib import Path

PACKAGES = ("cli", "functions", "infra", "local", "relay", "shared")
IMPORT_PACKAGE = "tenon"
SOURCES = "sources"
"""The folder of :data:`BUNDLED` as they are in the repository (infra/installation.py)."""
BUNDLED = ("functions", "infra", "relay", "shared")

_INIT = b'"""Tenon: just-in-time nodes for Amazon EKS. Only ``tenon.infra.construct`` is public."""\n'
_FROM = re.compile(rb"from[ \t]+(?=\w)")
_OWN = "|".join(PACKAGES)
_OWN_MODULE = re.compile(rf"({_OWN})(\.\w+)*")
_ENTRY_POINT = re.compile(rf"^([\w-]+ *= *)(?=({_OWN})[.:])", re.MULTILINE)
_IMPORTERS = frozenset({"__import__", "files", "find_spec", "import_module"})
"""Functions whose first argument is a module's name."""


class LayoutError(ValueError):
    """A module that can't be moved; the message says where and why."""


def move_packages(folder: Path) -> None:
    """Move the packages in the folder into the import package, and rewrite their imports.

    Raises:
        LayoutError: an import can't be rewritten.
    """
    target = folder / IMPORT_PACKAGE
    target.mkdir()
    (target / "__init__.py").write_bytes(_INIT)
    (target / "py.typed").touch()  # type checkers look for it in the top-level package (PEP 561)
    for name in BUNDLED:
        shutil.copytree(folder / name, target / SOURCES / name)
    for name in PACKAGES:
        (folder / name).rename(target / name)
        for path in sorted((target / name).rglob("*.py")):
            path.write_bytes(rewritten(path.read_bytes(), name=str(path.relative_to(target))))


def move_metadata(folder: Path) -> None:
    """Let a wheel's metadata name the import package: its entry points, and the names that it adds."""
    (folder / "top_level.txt").write_text(f"{IMPORT_PACKAGE}\n", encoding="utf-8")
    path = folder / "entry_points.txt"
    path.write_text(moved_entry_points(path.read_text(encoding="utf-8")), encoding="utf-8")


def moved_entry_points(text: str) -> str:
    r"""The entry points, in the import package.

    >>> moved_entry_points("[console_scripts]\ntenon = cli.main:run\n")
    '[console_scripts]\ntenon = tenon.cli.main:run\n'
    """
    return _ENTRY_POINT.sub(rf"\1{IMPORT_PACKAGE}.", text)


def rewritten(source: bytes, *, name: str) -> bytes:
    r"""The module with every import of our packages from the import package; everything else is the same.

    >>> rewritten(b"from shared.api import labels\nimport infra.app as app, json\n", name="x.py")
    b'from tenon.shared.api import labels\nimport tenon.infra.app as app, json\n'

    Raises:
        LayoutError: ``import infra.app``, which binds the name ``infra``, or our module's name in a string that is
            imported.
    """
    lines = source.splitlines(keepends=True)
    places: list[tuple[int, int]] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=str(module), level=0) if _is_ours(module):
                places.append(_module_place(node, lines, name))
            case ast.Import(names=aliases):
                places += [_alias_place(alias, name) for alias in aliases if _is_ours(alias.name)]
            case ast.Call():
                _check_call(node, name)
    for row, column in sorted(places, reverse=True):
        line = lines[row]
        lines[row] = line[:column] + f"{IMPORT_PACKAGE}.".encode() + line[column:]
    return b"".join(lines)


def _module_place(node: ast.ImportFrom, lines: list[bytes], name: str) -> tuple[int, int]:
    """The row and the column, in bytes, of the module's name."""
    keyword = _FROM.match(lines[node.lineno - 1], node.col_offset)
    if keyword is None:
        raise LayoutError(f"{name}:{node.lineno}: write `from {node.module}` on one line")
    return node.lineno - 1, keyword.end()


def _alias_place(alias: ast.alias, name: str) -> tuple[int, int]:
    if alias.asname is None:
        raise LayoutError(f"{name}:{alias.lineno}: write `from` to import {alias.name}")
    return alias.lineno - 1, alias.col_offset


def _check_call(call: ast.Call, name: str) -> None:
    match call:
        case ast.Call(func=ast.Attribute(attr=called) | ast.Name(id=called), args=[ast.Constant(value=str(text)), *_]):
            if called in _IMPORTERS and _OWN_MODULE.fullmatch(text):
                raise LayoutError(f'{name}:{call.lineno}: "{text}" has another name in a wheel (infra/installation.py)')


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in PACKAGES


if __name__ == "__main__":
    {"packages": move_packages, "metadata": move_metadata}[sys.argv[1]](Path(sys.argv[2]))
