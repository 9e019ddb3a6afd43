"""Files given to the command line: none takes memory or time without bound, and none is written elsewhere."""

from __future__ import annotations

import ast
import gzip
import json
from typing import TYPE_CHECKING

import pytest

from cli import file_contents
from shared.api.yaml_documents import reader
from shared.api.yaml_documents.tree import MAX_DEPTH, MAX_EXPANDED
from tests.integration.cli.command import CHECKOUT, call

if TYPE_CHECKING:
    from pathlib import Path

LAUGHS = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))]
)
LONG = f"a: &a {'x' * 100_000}\nb: &b [{', '.join(['*a'] * 100)}]\nc: &c [{', '.join(['*b'] * 100)}]"
BOMBS = {
    "a billion laughs": LAUGHS,
    "in each of many documents": "\n---\n".join([f"a: &a [{'x, ' * 500}]\nb: [{'*a, ' * 500}]"] * 10),
    "of a long text": LONG,
    "maps that contain themselves": "a: &a {b: *a}",
    "deep lists": "a: " + "[" * 100_000,
    "deep maps by indentation": "\n".join(f"{' ' * n}a:" for n in range(2_000)),
    "deep JSON": '{"a":' * 100_000,
    "merges of merges": "a0: &a0 {k: v}\n"
    + "\n".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 90)),
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_a_usage_error_or_small(text: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb.yaml"
    path.write_text(text)
    done = call("plan", "--file", str(path))
    assert done.code in (1, 2)
    assert "bomb.yaml" in done.err
    assert len(done.err) < 2_000


def test_aliases_are_bounded_over_all_documents_of_a_text() -> None:
    document = f"a: &a [{'x, ' * 1_000}]\nb: [{'*a, ' * (MAX_EXPANDED // 4_000)}]"
    assert len(reader.documents("\n---\n".join([document] * 3))) == 3
    with pytest.raises(reader.YamlError, match="aliases stand for more than"):
        reader.documents("\n---\n".join([document] * 5))


def test_nesting_within_the_bound_is_read() -> None:
    depth = MAX_DEPTH - 1
    assert reader.document(f"a: {'[' * depth}{']' * depth}") is not None


def test_gzip_that_unpacks_to_far_more_than_its_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * (200 << 20)))
    assert path.stat().st_size < 1 << 20
    done = call("plan", "--file", str(path))
    assert done.code == 2
    assert "gzip unpacks to more than 64 MiB" in done.err


def test_gzip_of_ordinary_size_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pods.json.gz"
    path.write_bytes(gzip.compress(b'{"kind": "List", "items": []}'))
    assert file_contents.read_bytes(path) == b'{"kind": "List", "items": []}'


def test_a_file_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """``/dev/zero`` would be read for ever; the bound is smaller here, as reading 2 GiB takes seconds."""
    monkeypatch.setattr(file_contents, "MAX_BYTES", 1 << 20)
    done = call("plan", "--file", "/dev/zero")
    assert done.code == 2
    assert "/dev/zero: more than" in done.err


KUBECONFIGS = {
    "a billion laughs": LAUGHS,
    "deep lists": "clusters: " + "[" * 10_000 + "]" * 10_000,
    "a token that ends the header": json.dumps(
        {
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "u", "user": {"token": "x\r\nHost: example.com"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    ),
}


@pytest.mark.parametrize("text", KUBECONFIGS.values(), ids=KUBECONFIGS)
def test_a_hostile_kubeconfig_is_an_error_in_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    done = call("plan", env={"KUBECONFIG": str(path), "AWS_REGION": "us-east-1"})
    assert done.code == 1
    assert len(done.err.splitlines()) == 1
    assert "no cluster configured" in done.err


@pytest.mark.parametrize("name", ["../../etc/x", "/etc/x", "a/b", "..", "x\x00y"])
@pytest.mark.parametrize("command", ["template", "manifests", "demo --cluster"])
def test_a_clusters_name_is_no_path(command: str, name: str) -> None:
    done = call(*command.split(), name)
    assert done.code == 2, done.err


def test_files_are_only_written_where_options_say() -> None:
    """A module that begins to write files is added here once it is clear that their names are of no object."""
    writing = {"write_text", "write_bytes", "mkdir", "touch", "rename", "symlink_to", "unlink"}
    written = {
        str(path.relative_to(CHECKOUT / "cli"))
        for path in (CHECKOUT / "cli").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in writing
    }
    assert written == {
        "demo/kept_world.py",  # the demo's kubeconfig, whose path is fixed
        "html_page.py",  # --output
        "report/recording.py",  # --record
        "template/run.py",  # --template, and a temporary folder
        "verify/run.py",  # --latencies
    }
