"""The pages that say where things are name files that are there, and enough of them."""

from __future__ import annotations

import re

from tests.unit.code.source import ROOT

QUESTIONS = 40


def _rows(text: str) -> list[list[str]]:
    """The cells of every row of the text's tables, without their heads."""
    lines = text.splitlines()
    heads = {i for i, line in enumerate(lines) if line.startswith("|---")}
    rows = [line for i, line in enumerate(lines) if line.startswith("|") and not {i, i + 1} & heads]
    return [line.strip("| ").split(" | ") for line in rows]


def _page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_every_answer_to_where_something_is_decided_is_there() -> None:
    section = _page("architecture.md").partition("## Where is X decided?")[2]
    rows = _rows(re.split(r"^## ", section, flags=re.MULTILINE)[0])
    assert len(rows) >= QUESTIONS
    assert len({question for question, *_ in rows}) == len(rows)
    files = [file for _, answer in rows for file in re.findall(r"`([^`]+)`", answer)]
    assert len(files) >= len(rows)
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_every_term_of_the_glossary_lives_where_it_says() -> None:
    rows = _rows(_page("glossary.md"))
    assert rows
    places = [place for *_, answer in rows for place in re.findall(r"`([a-z_]+/[^`]+)`", answer)]
    assert len(places) >= len(rows) / 2
    assert [place for place in places if not (ROOT / place).exists()] == []
