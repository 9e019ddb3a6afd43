"""The generated pages, and the names in all pages."""

from __future__ import annotations

import ast
import itertools
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from cli.export import families
from cli.main import app
from docs import events_page, generate
from infra.options import stack_options
from shared.base import metrics

DOCS = Path(__file__).parents[3] / "docs"
ROOT = DOCS.parent


def test_generated_pages_are_current() -> None:
    assert generate.stale() == []


def test_the_navigation_has_exactly_the_existing_pages() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = yaml.safe_load(text[text.index("nav:") :])["nav"]
    assert sorted(_files(nav)) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


def test_files_named_in_pages_exist() -> None:
    missing = {
        f"{page.name}: {name}"
        for page in DOCS.rglob("*.md")
        for name in re.findall(
            r"\b(?:tests|shared|functions|infra|local|bench|cli|docs)/[\w./-]+\w", page.read_text("utf-8")
        )
        if not (ROOT / name).exists()
    }
    assert not missing


def test_tests_named_in_pages_exist() -> None:
    named = {
        pair
        for page in DOCS.rglob("*.md")
        for pair in re.findall(r"(tests/[\w/]+\.py)::(\w+)", page.read_text(encoding="utf-8"))
    }
    assert named
    assert {(file, test) for file, test in named if f"def {test}(" not in (ROOT / file).read_text("utf-8")} == set()


@cache
def _texts_in_code() -> tuple[str, ...]:
    """Every text and class name in what is deployed and in the command."""
    texts: set[str] = set()
    for folder in ("functions", "relay", "shared", "infra", "cli"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    texts.add(node.value)
                elif isinstance(node, ast.ClassDef):
                    texts.add(node.name)
    return tuple(texts)


def _prose(page: str) -> str:
    return re.sub(r"```.*?```", "", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL)


AWS_SAYS = {"Concurrent executions"}
"""Quoted in those pages because AWS calls it so."""
NAMED_BY_OTHERS = {
    "AccessDenied", "CloudTrail", "ConfigMap", "CustomResourceDefinition", "DynamoDB", "EventBridge", "SendMessage",
    "KarpenterNodeRole", "ScaledObject", "CloudFormation",
}  # fmt: skip
"""What Kubernetes and AWS call things that the code doesn't name, or that aren't ours."""


@pytest.mark.parametrize("page", ["troubleshooting.md", "runbooks.md"])
def test_quoted_texts_of_a_page_are_in_the_code(page: str) -> None:
    quoted = {" ".join(text.split()) for text in re.findall(r'"([^"]+)"', _prose(page))} - AWS_SAYS
    assert len(quoted) > 3
    assert {text for text in quoted if not any(text in text_in_code for text_in_code in _texts_in_code())} == set()


@pytest.mark.parametrize("page", ["troubleshooting.md", "runbooks.md", "migration.md", "interruptions.md"])
def test_reasons_conditions_and_errors_named_in_a_page_exist(page: str) -> None:
    """A reason is an event's, a condition or an error's name: in code it stands as a text of its own or as a class."""
    known = set(_texts_in_code()) | events_page.reasons() | NAMED_BY_OTHERS
    known |= {text.partition(":")[2] for text in _texts_in_code()}  # an action: ec2:DescribeInstances
    words = set(re.findall(r"(?<![/.\w-])[A-Z]+[a-z0-9]+(?:[A-Z][a-z]*)+(?![\w(])", _prose(page)))
    assert words
    assert {w for w in words if not {w, w.removesuffix("s"), w.replace("ies", "y")} & known} == set()


def test_metrics_named_in_pages_exist() -> None:
    known = {m.name for m in metrics.ALL} | {metrics.UNWELL} | {f.name for f in families.ALL}
    named = {
        "".join(parts)
        for page in DOCS.rglob("*.md")
        if page.name != "karpenter-metrics.md"  # also those that are absent: test_karpenter_metrics.py
        for text in re.findall(r"`((?:tenon|karpenter)_[a-z_{},]+)`", page.read_text(encoding="utf-8"))
        for parts in itertools.product(*(part.split(",") for part in re.split(r"[{}]", text)))
    }
    assert len(named) > len(known) / 2
    assert named <= known


def test_stack_options_and_commands_named_in_pages_exist() -> None:
    pages = [*DOCS.rglob("*.md"), ROOT / "README.md"]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    assert set(re.findall(r"-c (\w+)=", text)) <= {*stack_options.KEYS, "KEY"}
    commands = {c.name or getattr(c.callback, "__name__", "").replace("_", "-") for c in app.registered_commands}
    commands |= {g.typer_instance.info.name for g in app.registered_groups if g.typer_instance is not None}
    assert set(re.findall(r"(?:^|`)tenon ([a-z]+(?:-[a-z]+)*)", text, flags=re.MULTILINE)) <= commands


def _files(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    assert isinstance(parts, list | type({}.values()))
    return [file for part in parts for file in _files(part)]
