"""What a warm function remembers is listed with its bound: a new cache needs a row in docs/resilience.md."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from tests.unit.code import source

if TYPE_CHECKING:
    from collections.abc import Iterator

SHIPPED = ("functions", "shared")
RUNTIME = "shared/base/runtime.py"
MOST_RESULTS = 16_384


def remembers(node: ast.AST) -> bool:
    """Whether the statement or call keeps something for later invocations in the process's cache."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "cached"
    targets = node.targets if isinstance(node, ast.Assign) else []
    parts = [target.value for target in targets if isinstance(target, ast.Subscript)]
    return any(isinstance(part, ast.Attribute) and part.attr == "cache" for part in parts)


def is_growing_global(node: ast.stmt) -> bool:
    """Whether the module's statement makes an empty container that isn't a constant."""
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    is_constant = all(isinstance(target, ast.Name) and target.id.isupper() for target in targets)
    is_empty = isinstance(node.value, ast.Dict | ast.List | ast.Set) and not list(ast.iter_child_nodes(node.value))
    is_made = isinstance(node.value, ast.Call) and ast.unparse(node.value.func).rpartition(".")[2] in {
        "defaultdict",
        "dict",
        "list",
        "set",
    }
    return not is_constant and (is_empty or (is_made and isinstance(node.value, ast.Call) and not node.value.args))


def cached_functions(module: ast.Module) -> Iterator[tuple[str, str]]:
    """The functions with arguments whose results are remembered, with the decorator. Inner ones end with their call."""
    bodies = [module.body, *(node.body for node in module.body if isinstance(node, ast.ClassDef))]
    for function in (node for body in bodies for node in body if isinstance(node, ast.FunctionDef)):
        for decorator in function.decorator_list if function.args.args else []:
            text = ast.unparse(decorator).removeprefix("functools.")
            if text == "cache" or text.startswith("lru_cache"):
                yield function.name, text


def has_cache(module: ast.Module) -> bool:
    """Whether the module keeps anything for later invocations."""
    return (
        any(map(remembers, ast.walk(module)))
        or any(map(is_growing_global, module.body))
        or any(True for _ in cached_functions(module))
    )


def test_every_cache_is_listed_with_its_bound() -> None:
    section = (source.ROOT / "docs/resilience.md").read_text().partition("## What warm functions remember")[2]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    assert all(what and bound for what, bound, _ in rows)
    listed = {file for *_, where in rows for file in re.findall(r"`([^`]+)`", where)}
    modules = {source.name(path): source.syntax(path) for path in source.modules(*SHIPPED)}
    assert listed == {name for name, module in modules.items() if has_cache(module)} - {RUNTIME}


def test_remembered_results_have_a_bound() -> None:
    unbounded = []
    for path in source.modules(*SHIPPED):
        for function, text in cached_functions(source.syntax(path)):
            size = re.fullmatch(r"lru_cache\(maxsize=(\d+)\)", text)
            if size is None or int(size[1]) > MOST_RESULTS:
                unbounded.append(f"{source.name(path)}: {function}")
    assert unbounded == []
