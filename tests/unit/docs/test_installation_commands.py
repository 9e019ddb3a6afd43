"""No page, help text or message installs Tenon from a registry, where its name may be a stranger's."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.unit.code.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

_INSTALLS = re.compile(
    r"(?:\b(?:pip|pip3|pipx|uv pip|uv tool) (?:install|run|download|wheel)|\buvx|\buv add|\buv tool run)\b([^\n`|;&]*)"
)
_QUOTED = re.compile(r"['\"]([^'\"]*)['\"]|(\S+)")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w,-]+\])?([=<>~!]=?.*)?")
_FOREIGN = frozenset({"uv"})
"""Packages of others that a page may install by name."""
_WITH_VALUE = frozenset(
    {"-r", "-c", "--python", "--target", "--requirement", "--wheel-dir", "--only-binary", "--platform"}
)
_SAYS_WHY = "docs/designs/wheel.md"


def by_name(line: str) -> Iterator[str]:
    """What the line's commands install by a name on a registry."""
    for match in _INSTALLS.finditer(line):
        words = [quoted or bare for quoted, bare in _QUOTED.findall(match[1].partition("  #")[0])]
        for before, word in zip(["", *words], words, strict=False):
            if word.startswith("-") or before in _WITH_VALUE or "/" in word or ".whl" in word:
                continue
            if _NAME.fullmatch(word):
                yield word


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("pip install 'tenon[infra]'", ["tenon[infra]"]),
        ("run `pipx install tenon` first", ["tenon"]),
        ("uv tool install tenon-eks", ["tenon-eks"]),
        ("uvx tenon demo", ["tenon", "demo"]),
        ("pipx install dist/tenon_eks-*.whl   # after make wheel", []),
        ("pip install './tenon_eks-0.1.0-py3-none-any.whl[deploy]'", []),
        ("pip install --quiet --require-hashes -r requirements.lock", []),
    ],
)
def test_a_name_is_told_from_a_file(line: str, names: list[str]) -> None:
    assert list(by_name(line)) == names


def test_nothing_is_installed_by_a_name_that_is_not_ours() -> None:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wrong = []
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if name == _SAYS_WHY or name.startswith("tests/") or not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        wrong += [f"{name}: {word}" for line in text.splitlines() for word in by_name(line) if word not in _FOREIGN]
    assert wrong == []
