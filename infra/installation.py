"""Where Tenon's own files and modules are: in the checkout, or in the import package of its wheel.

A wheel has the code that goes into the functions' bundles as it is in the repository, with the relay's Dockerfile and a
copy of requirements.lock (distribution/layout.py). An installation may be read-only and is replaced by updates, so it
keeps what it builds in the user's cache.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

if TYPE_CHECKING:
    from types import ModuleType

DISTRIBUTION = "tenon-eks"
"""Tenon's name as a package (docs/designs/wheel.md)."""
_PREFIX = __name__.removesuffix("infra.installation")
"""What the names of Tenon's packages begin with: nothing in a checkout, the import package in a wheel."""
_PACKAGES = Path(__file__).resolve().parent.parent
ROOT = _PACKAGES / "sources" if _PREFIX else _PACKAGES
"""The folder of functions/, infra/, relay/ and shared/ as they are in the repository."""

_LOCK = "requirements.lock"
_KEPT_FOLDERS = 20
_KEPT_SECONDS = 3600.0


def version() -> str:
    """The version of Tenon that runs."""
    return importlib.metadata.version(DISTRIBUTION)


def with_infra() -> str:
    """The command that installs Tenon with what deploying needs. No registry has Tenon, so it names a file."""
    wheel = DISTRIBUTION.replace("-", "_")
    return f"pipx install --force 'dist/{wheel}-{version()}-py3-none-any.whl[infra]'"


def own_module(name: str) -> ModuleType:
    """The module of this name in the repository, such as a function's handler."""
    return importlib.import_module(f"{_PREFIX}{name}")


def lock(root: Path) -> Path:
    """The lock with the versions of the functions' packages."""
    return root / _LOCK if _is_checkout(root) else root / "infra" / _LOCK


def build_folder(root: Path) -> Path:
    """Where bundles and assemblies are built and kept."""
    if _is_checkout(root):
        return root / "build"
    return platformdirs.user_cache_path("tenon", appauthor=False)


def keep_recent(folder: Path) -> None:
    """Note that a folder of the cache is used; of its neighbours, keep 20 and those that were used within an hour.

    What is built is named by its sources, so each change of these leaves a folder that nobody asks for again.
    """
    os.utime(folder)
    last_uses: dict[Path, float] = {}
    for path in folder.parent.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process has removed it
            last_uses[path] = path.stat().st_mtime
    for path in sorted(last_uses, key=last_uses.__getitem__)[:-_KEPT_FOLDERS]:
        if time.time() - last_uses[path] > _KEPT_SECONDS:
            shutil.rmtree(path, ignore_errors=True)


def _is_checkout(root: Path) -> bool:
    return not (root / "infra" / _LOCK).is_file()
