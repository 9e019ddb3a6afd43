"""YAML is read as kubectl reads it: ``yaml_answers/answers.jsonl`` has kubectl's own answers.

They are printed by the Go program next to them, which calls kubectl's decoder (k8s.io/apimachinery 0.36). To add a
text, add a line ``{"text": "..."}`` and run, in ``tests/unit/api/yaml_answers``::

    go run . < answers.jsonl > new.jsonl && mv new.jsonl answers.jsonl
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from shared.api.yaml_documents import reader, writer

_TABLE = Path(__file__).parent / "yaml_answers" / "answers.jsonl"
ANSWERS = [json.loads(line) for line in _TABLE.read_text(encoding="utf-8").strip().split("\n")]


def as_kubernetes_decodes(value: Any) -> Any:
    """The JSON value with integers beyond 64 bits as floats, and without negative zero."""
    if isinstance(value, dict):
        return {key: as_kubernetes_decodes(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_kubernetes_decodes(item) for item in value]
    return float(value) if type(value) is int and not -(2**63) <= value < 2**63 else value


def as_text(value: Any) -> str:
    """A text that tells 1, 1.0 and true apart."""
    return json.dumps(as_kubernetes_decodes(value), sort_keys=True)


def read(text: str) -> str:
    """The documents of our reader as a text; "refused" where it refuses them."""
    try:
        return as_text(reader.documents(text))
    except reader.YamlError:
        return "refused"


def test_documents_are_those_of_kubectl() -> None:
    differing = {
        answer["text"]: ours
        for answer in ANSWERS
        if (ours := read(answer["text"])) != ("refused" if answer.get("error") else as_text(answer["documents"]))
    }
    assert differing == {}
    assert len(ANSWERS) > 700


def test_without_libyaml_too(monkeypatch: pytest.MonkeyPatch) -> None:
    # PyYAML's own parser refuses tabs that libyaml accepts
    texts = [answer["text"] for answer in ANSWERS if answer["text"] != "a:\tb"]
    with_libyaml = [read(text) for text in texts]
    monkeypatch.delattr(yaml, "CSafeLoader")
    assert {text: ours for text in texts if (ours := read(text)) != with_libyaml[texts.index(text)]} == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\n---\nb: 1\nc: [\n", "line 5: "),
        ("a: 1\n---\n\nb: !!int x\n", "line 4: cannot decode `x` as a !!int"),
        ("a: 1\n---\nb: 2\n--- c: 3\n", "line 4: invalid document separator: --- c: 3"),
        ("a: 1\nname: {{ name }}\n", "line 2: invalid map key"),
        ("a:\n  ~: 1\n", "line 2: unsupported map key: null"),
        ("a: .inf\n", "line 1: JSON has no infinite numbers"),
        ("a: &a\n  b: *a\n", "line 2: *a contains itself"),
        ("a: *nowhere\n", "line 1: unknown anchor nowhere referenced"),
        ('{"a": 1,}\n---\nb: [\n', "not JSON: "),
        (b"a: \xff", "not UTF-8 text: "),
    ],
)
def test_errors_name_the_line(text: str | bytes, problem: str) -> None:
    with pytest.raises(reader.YamlError) as raised:
        reader.documents(text)
    assert str(raised.value).startswith(problem)


def test_a_value_that_an_alias_repeats_can_be_changed_by_itself() -> None:
    first, second = reader.document("- &a {b: [1]}\n- *a\n")
    first["b"].append(2)
    assert second == {"b": [1]}


def test_the_kinds_can_be_imported_without_yaml() -> None:
    program = "import sys; import shared.api.yaml_documents.reader; print('yaml' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(), st.lists))
def test_json_is_read_as_it_stands(value: Any) -> None:
    assert reader.documents(json.dumps({"a": value})) == [{"a": value}]


_ODD_TEXTS = st.text(alphabet="yYnNoOfF=<~0123456789._-+eExb:#'\"|&*!%@{}[], \n\té\u0085\u2028\ufeff😀", max_size=6)


@given(st.dictionaries(_ODD_TEXTS, st.lists(_ODD_TEXTS | st.integers(-(2**63), 2**63 - 1) | st.none())))
def test_what_is_written_is_read_back(value: dict[str, Any]) -> None:
    assert reader.document(writer.text(value)) == value
    assert yaml.safe_load(writer.text(value)) == value


@pytest.mark.parametrize("text", ["=", "on", "y", "10:30", "1e3", "012345678901", "08", "0o17", "~", "2020-01-01"])
def test_texts_that_look_like_other_values_are_quoted(text: str) -> None:
    assert writer.text([text]) == f"- '{text}'\n"
