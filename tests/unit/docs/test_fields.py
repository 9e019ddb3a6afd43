"""Every field that Kubernetes and Karpenter publish is read, named to the user, or known not to matter."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from docs.fields import flatten, ledger, schemas

ROOT = Path(__file__).parents[3]
PRODUCTS = {"kubernetes": ("1.34", "1.35", "1.36", "1.37"), "karpenter": ("1.15",)}
ALL = [field for name in PRODUCTS for field in schemas.load(name).fields()]


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_published_field_is_decided(name: str) -> None:
    """Undecided fields of a new version: read them, name them to the user, or say why they don't matter."""
    published = schemas.load(name)
    assert tuple(published.sources) == PRODUCTS[name]
    for version in published.sources:
        fields = published.fields(version)
        assert len(fields) > 100
        assert ledger.undecided(fields) == []


def test_no_field_is_decided_twice() -> None:
    assert [f"{f.kind} {f.path}" for f in ALL if len(ledger.deciding(f)) > 1] == []


def test_every_decision_is_about_a_published_field() -> None:
    unused = [d for d in ledger.decisions() if not any(d.covers(field) for field in ALL)]
    assert [f"{d.kind} {d.pattern}" for d in unused] == []


def test_what_is_read_is_decided_field_by_field() -> None:
    """A prefix would hide that nobody reads a field below it."""
    paths = {field.path for field in ALL}  # one has an asterisk itself: spec.kubelet{}*
    assert [d for d in ledger.decisions() if d.group == "read" and "*" in d.pattern and d.pattern not in paths] == []


@cache
def text_of(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def snake(name: str) -> str:
    words = re.sub(
        r"([a-z0-9])([A-Z])", r"\1_\2", re.sub(r"(ID|IP|IPv6)(?=[A-Z]|\b)", lambda m: m[1].capitalize(), name)
    )
    return words.lower()


def attribute(decision: ledger.Decision) -> str:
    return snake(field_name(decision))


def field_name(decision: ledger.Decision) -> str:
    return re.sub(r"\W", "", decision.pattern.rpartition(".")[2])


def test_the_file_that_reads_a_field_mentions_it() -> None:
    """As an attribute of its struct, or by its name in JSON."""
    missing = []
    for decision in ledger.decisions():
        if decision.group == "read":
            name, in_json = attribute(decision), field_name(decision)
            if not re.search(rf"\.{name}\b|\b{name}=|\"{in_json}\"", text_of(decision.why)):
                missing.append(f"{decision.kind} {decision.pattern}: {decision.why}")
    assert missing == []


WORDS_OF_MANY_MEANINGS = frozenset(
    {"args", "command", "mode", "parameters", "partition", "path", "ready", "state", "stdin"}
)


def test_nobody_reads_a_field_that_does_not_matter() -> None:
    """Who reads one has to move it in the ledger; names that fields which are read have too can't be told apart."""
    read = {attribute(d) for d in ledger.decisions() if d.group == "read"} | WORDS_OF_MANY_MEANINGS
    ignored = {attribute(d): d for d in ledger.decisions() if d.group == "ignored" and "*" not in d.pattern}
    files = [path for folder in ("shared", "functions", "relay", "cli") for path in (ROOT / folder).rglob("*.py")]
    attributes = {name for path in files for name in re.findall(r"\.([a-z_0-9]+)\b", path.read_text(encoding="utf-8"))}
    assert [ignored[name] for name in sorted((ignored.keys() - read) & attributes)] == []


def test_what_names_an_unsupported_field_exists() -> None:
    for decision in ledger.decisions():
        if decision.group == "unsupported":
            files = re.findall(r"shared/[\w/]+\.py", decision.why)
            assert files
            assert all((ROOT / file).exists() for file in files)


def test_a_new_field_is_undecided_until_someone_decides() -> None:
    probe, spec = schemas.Field("PodSpec", "podSizePolicy"), schemas.Field("PodSpec", "containers[]", "Container")
    shared = schemas.Field("PodSpec", "futureThing", "FutureThing")
    assert ledger.undecided([probe, spec, shared]) == ["PodSpec podSizePolicy", "PodSpec futureThing"]


DEFINITION = {
    "spec": {
        "names": {"kind": "Balloon"},
        "versions": [
            {"storage": False, "schema": {"openAPIV3Schema": {"properties": {"old": {"type": "string"}}}}},
            {
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "properties": {
                            "colours": {"type": "array", "items": {"properties": {"name": {"type": "string"}}}},
                            "sizes": {"type": "object", "additionalProperties": {"type": "integer"}},
                            "gas": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        }
                    }
                },
            },
        ],
    }
}


def test_the_fields_of_a_definition_are_its_stored_versions() -> None:
    assert [f.path for f in flatten.of_definition(DEFINITION)] == ["colours[].name", "gas*", "sizes{}"]


def test_fields_are_kept_with_the_versions_that_have_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "HERE", tmp_path)
    a, b, c = (schemas.Field("Balloon", path, type_) for path, type_ in (("a", ""), ("b", "Rope"), ("c", "")))
    for version, fields in (("1.2", (a, b)), ("1.1", (a, c)), ("1.2", (a, b, c))):
        kept = schemas.load("balloons")
        kept.add(version, f"a shop's {version}", fields)
        schemas.save("balloons", kept)
    read = schemas.load("balloons")
    assert read.sources == {"1.1": "a shop's 1.1", "1.2": "a shop's 1.2"}
    assert read.fields() == (a, b, c)
    assert read.fields("1.1") == (a, c)
