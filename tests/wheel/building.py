"""Builds the wheel as `make wheel` does, from the repository's files, without what lies about in a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.unit.code.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def wheel(folder: Path) -> Path:
    """The wheel, in the folder; it is built with the installed packages."""
    checkout = _copy(folder / "checkout")
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder / "dist"), str(checkout)]
    subprocess.run(command, cwd=folder, env=environ, check=True)
    (path,) = (folder / "dist").glob("tenon_eks-*.whl")
    return path


def _copy(target: Path) -> Path:
    """A copy of the repository's files."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)
    return target
