"""Sources of published Go modules, from Go's module proxy. Needs Go."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path


def downloaded(module: str, minor: str) -> tuple[str, Path]:
    """The newest release of a minor version that can be downloaded, and the folder of its sources.

    Raises:
        SystemExit: there is none.
    """
    releases = [r for r in _go("list", "-m", "-versions", module).split()[1:] if r.startswith(f"v{minor}.")]
    for release in reversed([r for r in releases if "-" not in r]):
        try:
            return release, Path(json.loads(_go("mod", "download", "-json", f"{module}@{release}"))["Dir"])
        except subprocess.CalledProcessError:
            continue  # listed, but not served
    raise SystemExit(f"no release of {module} {minor} can be downloaded")


def printed(program: Path, module: str, release: str) -> str:
    """What the Go program prints, which is one file and imports that release of the module."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "main.go").write_text(program.read_text(encoding="utf-8"), encoding="utf-8")
        _go("mod", "init", "program", folder=folder)
        _go("get", f"{module}@{release}", folder=folder)
        return _go("run", ".", folder=folder)


def _go(*arguments: str, folder: str = "") -> str:
    """What Go prints in the folder; "": in an empty one."""
    environment = {**os.environ, "GOFLAGS": "-mod=mod"}
    with tempfile.TemporaryDirectory() as empty_folder:
        command, cwd = ["go", *arguments], folder or empty_folder
        # S603: only module names and versions of this file's callers and of the proxy's lists.
        done = subprocess.run(command, cwd=cwd, env=environment, check=True, text=True, stdout=subprocess.PIPE)  # noqa: S603
    return done.stdout
