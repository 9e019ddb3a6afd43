"""The rooms of shared/, that is, its packages and modules, and the arrows between them, that is, who imports whom."""

from __future__ import annotations

import ast

from tests.unit.code.source import ROOT, modules, syntax

MOST_ROOMS = 17
MOST_ARROWS = 76


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def _arrows() -> set[tuple[str, str]]:
    """Each pair of rooms of which the first imports the second, late imports and those for types included."""
    arrows = set()
    for path in modules("shared"):
        room = path.relative_to(ROOT / "shared").with_suffix("").parts[0]
        imported = [name.split(".") for node in ast.walk(syntax(path)) for name in _imported(node)]
        arrows |= {(room, parts[1]) for parts in imported if parts[0] == "shared" and parts[1] != room}
    return arrows


def test_shared_has_few_rooms_and_few_arrows_between_them() -> None:
    arrows = _arrows()
    rooms = {room for arrow in arrows for room in arrow}
    assert {"api", "base", "scheduling", "provisioning"} <= rooms
    assert len(rooms) <= MOST_ROOMS
    assert len(arrows) <= MOST_ARROWS
