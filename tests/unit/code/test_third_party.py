"""The repository has no code of others: libraries are packages, pinned with their checksums."""

from __future__ import annotations

import json
import re
import subprocess

from tests.unit.code.source import ROOT

LONGEST_LINE = 1000
"""Characters; minified code has lines of tens of thousands."""
NOTICE = re.compile(r"/\*!|@license|Copyright \(c\)|SPDX-License-Identifier", re.IGNORECASE)


def _files(*suffixes: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name.endswith(suffixes) and (ROOT / name).is_file()]


def test_no_script_style_or_module_is_minified_or_has_the_notice_of_others() -> None:
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in _files(".js", ".css", ".html", ".py", ".go")}
    assert len(texts) > 100
    texts.pop("tests/unit/code/test_third_party.py", None)
    assert [name for name, text in texts.items() if max(map(len, text.splitlines()), default=0) > LONGEST_LINE] == []
    assert [name for name, text in texts.items() if NOTICE.search(text)] == []
    assert [name for name in _files("") if "license" in name.lower()] == ["LICENSE"]


def test_the_packages_of_npm_are_pinned_by_checksum_and_name_no_registry() -> None:
    package = json.loads((ROOT / "package.json").read_text())
    declared = package["dependencies"] | package["devDependencies"]
    locked = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    packages = {name.rpartition("node_modules/")[2]: entry for name, entry in locked.items() if name}
    assert {name: entry["version"] for name, entry in packages.items()} == declared
    for entry in packages.values():
        assert entry["integrity"].startswith("sha512-")
        assert "resolved" not in entry
