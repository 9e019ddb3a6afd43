"""The page of differences names fields and annotations that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shared.api import crds

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/karpenter-differences.md").read_text(encoding="utf-8")


def fields_of_section(title: str) -> list[str]:
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return [field for row in rows for field in re.findall(r"`(spec\.[\w.]+)`", row.split("|")[1])]


def has(schema: Mapping[str, Any], path: list[str]) -> bool:
    if not path:
        return True
    inner = schema.get("items", schema).get("properties", {})
    return path[0] in inner and has(inner[path[0]], path[1:])


@pytest.mark.parametrize("kind", ["NodePool", "EC2NodeClass"])
def test_the_fields_of_a_kind_exist(kind: str) -> None:
    (definition,) = [d for d in crds.load() if d["spec"]["names"]["kind"] == kind]
    schema = definition["spec"]["versions"][-1]["schema"]["openAPIV3Schema"]
    fields = fields_of_section(kind)
    assert len(fields) > 2
    assert [field for field in fields if not has(schema, field.split("."))] == []


def test_the_annotations_exist() -> None:
    code = "\n".join(
        path.read_text(encoding="utf-8") for folder in ("shared", "functions") for path in (ROOT / folder).rglob("*.py")
    )
    annotations = set(re.findall(r"`(tenon\.sh/[\w-]+)`", PAGE))
    assert len(annotations) > 5
    assert {name for name in annotations if f'"{name}"' not in code} == set()


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| `")]


def test_every_fact_about_karpenter_1_15_has_a_verdict() -> None:
    facts = (ROOT / "docs/facts/karpenter-1.15.md").read_text(encoding="utf-8")
    section = PAGE.split("\n## What 1.15 changed\n")[1].split("\n## ")[0]
    ids = [fact for fact, *_ in rows(facts)]
    assert len(ids) == len(set(ids)) > 50
    assert [fact for fact, *_ in rows(section)] == ids
    assert {verdict for _, verdict, _ in rows(section)} == {"same", "different", "absent"}
    assert [fact for fact, verdict, how in rows(section) if verdict == "different" and not how] == []
