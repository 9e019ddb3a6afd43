"""Fetches the npm packages of :mod:`cli.npm`: ``python -m cli.npm.fetch``.

Only npm is called, with the user's own settings, and it runs no script of a package. What it downloads is compared with
the digest here, so neither a registry nor a mirror can change it.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cli.npm import FILES

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT_SECONDS = 300


class FetchError(RuntimeError):
    """A package that can't be downloaded, or isn't the one that was pinned."""


@dataclass(frozen=True, kw_only=True)
class Package:
    """``sha512`` is base64, as in npm's ``integrity``. ``files`` are the names here of paths in the package."""

    name: str
    version: str
    sha512: str
    files: Mapping[str, str]


PACKAGES = (
    # charts of `tenon report`; 51 KB, and steps over time are all that they need
    Package(
        name="uplot",
        version="1.6.32",
        sha512="KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        files={"uplot.js": "dist/uPlot.iife.min.js", "uplot.css": "dist/uPlot.min.css", "uplot.LICENSE": "LICENSE"},
    ),
    # diagrams of the docs' site; not in the wheel
    Package(
        name="@mermaid-js/tiny",
        version="12.0.0",
        sha512="ZW9YXy+3tSLPscBT+NnQO0K0qYH7BGES5nExl6Snoygey7xd2N0cO7Nq30N5k/u7gIeYoCrldyVy+VTCMWrNDQ==",
        files={"mermaid.js": "dist/mermaid.tiny.js", "mermaid.LICENSE": "LICENSE"},
    ),
)


def fetch(package: Package, into: Path) -> None:
    """Download a package and put its files into the folder.

    Raises:
        FetchError: npm is missing or fails, or the download has another digest.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise FetchError("npm is required on PATH; it comes with Node.js")
    wanted = f"{package.name}@{package.version}"
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", wanted, "--silent", "--ignore-scripts", "--pack-destination", folder]
        done = subprocess.run(  # noqa: S603 (npm, and names from this file)
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS
        )
        archives = list(Path(folder).glob("*.tgz"))
        if done.returncode or len(archives) != 1:
            raise FetchError(f"npm can't download {wanted}: {done.stderr.strip() or done.stdout.strip()}")
        unpack(package, archives[0], into)


def unpack(package: Package, archive: Path, into: Path) -> None:
    """Put a downloaded package's files into the folder.

    Raises:
        FetchError: the archive has another digest.
    """
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != package.sha512:
        raise FetchError(f"{package.name}@{package.version} has the SHA-512 digest {digest}, not {package.sha512}")
    into.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as files:
        for name, path in package.files.items():
            member = files.extractfile(f"package/{path}")
            if member is None:
                raise FetchError(f"{package.name}@{package.version} has no file {path}")
            (into / name).write_bytes(member.read())


def main() -> int:
    """Fetch all packages; the exit code."""
    try:
        for package in PACKAGES:
            fetch(package, FILES)
    except (FetchError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
