"""Names are terms that people know from Kubernetes, Karpenter and AWS (docs/glossary.md), and say what they name."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from tests.unit.code.source import PACKAGES, ROOT, modules, name, syntax

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SAY_NOTHING = {
    "asked", "bears", "found", "its", "look", "looks", "made", "mine", "one", "other", "others", "picky", "some",
    "tell", "that", "thing", "things", "told", "what",
}  # fmt: skip
"""Whole names that don't say what they name."""

RETIRED = {
    "anew", "asking", "beside", "bundler", "buying", "carrying", "dealer", "dealing", "dealt", "dearer", "desk",
    "emptying", "ending", "ground", "hops", "hurried", "improver", "improving", "judge", "market", "noticing",
    "polite", "promise", "promised", "promises", "refusal", "refusals", "rig", "rival", "seat", "seated", "seating",
    "seats", "sighted", "sightings", "staying", "succession", "taking", "unseat", "vain", "wishes", "witness",
}  # fmt: skip
"""Words of former names; each has a term of the field in its place."""

RETIRED_PROSE = re.compile(
    r"\b(anew|beside|dearer|in vain|goes on(?! (?:the|a|an|its|each|every)\b)"
    r"|(?:at least|at most|up to|after|each|of) so (?:many|much|long|few))\b",
    re.IGNORECASE,
)
"""Words with plainer ones in their place: again, next to, more expensive, continues, that many."""


@pytest.mark.parametrize("package", [*PACKAGES, "tests"])
def test_names_are_terms_that_say_something(package: str) -> None:
    wrong = sorted({f"{name(path)}: {word}" for path in _modules(package) for word in _names(path) if _is_wrong(word)})
    assert wrong == []


@pytest.mark.parametrize("package", [*PACKAGES, "tests"])
def test_modules_are_not_named_by_retired_words(package: str) -> None:
    assert [name(path) for path in _modules(package) if path.stem in SAY_NOTHING or _words(path.stem) & RETIRED] == []


def test_prose_has_no_retired_words() -> None:
    pages = (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "Makefile"))
    texts = [*pages, *(ROOT / "docs").rglob("*.md"), *(path for p in [*PACKAGES, "tests"] for path in _modules(p))]
    retired = {
        f"{name(path)}: {match[0]}"
        for path in texts
        for match in RETIRED_PROSE.finditer(path.read_text(encoding="utf-8"))
    }
    assert sorted(retired) == []


def _modules(package: str) -> list[Path]:
    """The package's modules, except these tests, which quote the words that they forbid."""
    return [path for path in modules(package) if not path.is_relative_to(ROOT / "tests/unit/code")]


def _is_wrong(identifier: str) -> bool:
    return identifier.strip("_") in SAY_NOTHING or bool(_words(identifier) & RETIRED)


def _words(identifier: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)}


def _names(path: Path) -> Iterator[str]:
    """What the module defines: variables, arguments, attributes, functions, classes and aliases of imports."""
    operators = {id(argument) for argument in _arguments_of_operators(syntax(path))}
    for node in ast.walk(syntax(path)):
        match node:
            case ast.arg() if id(node) in operators:
                pass
            case ast.Name(id=identifier, ctx=ast.Store()) | ast.arg(arg=identifier):
                yield identifier
            case ast.FunctionDef(name=identifier) | ast.ClassDef(name=identifier):
                yield identifier
            case ast.Attribute(attr=identifier, ctx=ast.Store()) | ast.alias(asname=str(identifier)):
                yield identifier


def _arguments_of_operators(module: ast.Module) -> Iterator[ast.arg]:
    """The arguments of ``__eq__`` and the like, whose second is called ``other`` everywhere."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("__"):
            yield from node.args.args
