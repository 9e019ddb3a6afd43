"""JavaScript of others: what isn't the pinned package is refused, and a missing file says what to run."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cli import npm
from cli.npm import fetch

if TYPE_CHECKING:
    from pathlib import Path

PACKAGE = fetch.Package(name="chart", version="1.0.0", sha512="", files={"chart.js": "dist/chart.js"})


def archive(path: Path, contents: bytes) -> str:
    """Writes a package with one file; returns its digest."""
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo("package/dist/chart.js")
        member.size = len(contents)
        tar.addfile(member, io.BytesIO(contents))
    return base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()


def test_the_files_of_the_pinned_package_are_unpacked(tmp_path: Path) -> None:
    digest = archive(tmp_path / "chart.tgz", b"draw()")
    fetch.unpack(replace(PACKAGE, sha512=digest), tmp_path / "chart.tgz", tmp_path / "files")
    assert (tmp_path / "files" / "chart.js").read_bytes() == b"draw()"


def test_a_package_with_another_digest_is_refused(tmp_path: Path) -> None:
    digest = archive(tmp_path / "chart.tgz", b"draw()")
    archive(tmp_path / "chart.tgz", b"steal()")
    with pytest.raises(fetch.FetchError, match=r"chart@1\.0\.0 has the SHA-512 digest"):
        fetch.unpack(replace(PACKAGE, sha512=digest), tmp_path / "chart.tgz", tmp_path / "files")
    assert not (tmp_path / "files").exists()


def test_a_file_that_was_not_fetched_says_what_to_run() -> None:
    with pytest.raises(npm.MissingFileError, match="run `make setup`"):
        npm.text("nothing.js")
