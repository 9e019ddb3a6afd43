"""The design pages: complete, listed in the index and in the site's navigation, and about files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DESIGNS = ROOT / "docs/designs"
PAGES = sorted(page.name for page in DESIGNS.glob("*.md") if page.name != "README.md")
SECTIONS = ["Decision", "Alternatives that lost", "In the code", "What would change it"]


def _text(name: str) -> str:
    return (DESIGNS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_asks_a_question_and_says_what_was_decided_what_lost_and_what_would_change_it(name: str) -> None:
    page = _text(name)
    assert "\n\n**Question.** " in page
    sections = re.findall(r"^## (.*)$", page, flags=re.MULTILINE)
    assert [section for section in sections if section in SECTIONS] == SECTIONS


@pytest.mark.parametrize("name", PAGES)
def test_the_files_that_a_page_names_are_there(name: str) -> None:
    paths = re.findall(r"`((?:shared|functions|relay|infra|bench|tests)/[^`: ]+)`", _text(name))
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_index_and_the_navigation_list_every_page() -> None:
    assert sorted(re.findall(r"\]\(([a-z-]+\.md)\)", _text("README.md"))) == PAGES
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert sorted(re.findall(r"designs/([a-z-]+\.md)", navigation)) == PAGES
