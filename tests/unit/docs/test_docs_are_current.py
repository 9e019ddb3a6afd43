"""The pages that are written from code, and what the pages name."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from docs import generate

DOCS = Path(__file__).parents[3] / "docs"
ROOT = DOCS.parent


def test_pages_are_what_the_code_says() -> None:
    assert generate.stale() == []


def test_every_page_is_in_the_navigation_and_every_entry_is_there() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = yaml.safe_load(text[text.index("nav:") :])["nav"]
    assert sorted(_files(nav)) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


def test_files_that_pages_name_are_there() -> None:
    missing = {
        f"{page.name}: {name}"
        for page in DOCS.rglob("*.md")
        for name in re.findall(
            r"\b(?:tests|shared|functions|infra|local|bench|cli|docs)/[\w./-]+\w", page.read_text("utf-8")
        )
        if not (ROOT / name).exists()
    }
    assert not missing


def test_tests_that_pages_name_are_there() -> None:
    named = {
        pair
        for page in DOCS.rglob("*.md")
        for pair in re.findall(r"(tests/[\w/]+\.py)::(\w+)", page.read_text(encoding="utf-8"))
    }
    assert named
    assert {(file, test) for file, test in named if f"def {test}(" not in (ROOT / file).read_text("utf-8")} == set()


def _files(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    assert isinstance(parts, list | type({}.values()))
    return [file for part in parts for file in _files(part)]
