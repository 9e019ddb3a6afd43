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


def _go(*arguments: str) -> str:
    environment = {**os.environ, "GOFLAGS": "-mod=mod"}
    with tempfile.TemporaryDirectory() as folder:
        command = ["go", *arguments]
        # S603: only module names and versions of this file's callers and of the proxy's lists.
        done = subprocess.run(command, cwd=folder, env=environment, check=True, text=True, stdout=subprocess.PIPE)  # noqa: S603
    return done.stdout
