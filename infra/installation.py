"""Where Tenon's own files and modules are: in the checkout, or in the import package of its wheel.

A wheel has the code that goes into the functions' bundles as it is in the repository, with the relay's Dockerfile and a
copy of requirements.lock (distribution/layout.py). An installation may be read-only and is replaced by updates, so it
keeps what it builds in the user's cache.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

DISTRIBUTION = "tenon-eks"
"""Tenon's name as a package (docs/designs/wheel.md)."""
_PREFIX = __name__.removesuffix("infra.installation")
"""What the names of Tenon's packages begin with: nothing in a checkout, the import package in a wheel."""
_PACKAGES = Path(__file__).resolve().parent.parent
ROOT = _PACKAGES / "sources" if _PREFIX else _PACKAGES
"""The folder of functions/, infra/, relay/ and shared/ as they are in the repository."""

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "demo": ("moto", "celpy", "cryptography", "jsonschema", "aws_lambda_powertools"),
    "deploy": ("aws_cdk", "constructs", "packaging", "aws_lambda_powertools"),
    "export": ("prometheus_client", "aws_lambda_powertools"),
}
"""The extras of users, each with the modules that it adds to an installation (pyproject.toml says why)."""

_LOCK = "requirements.lock"
_KEPT_FOLDERS = 20
_KEPT_SECONDS = 3600.0


class MissingExtraError(RuntimeError):
    """An extra isn't installed; the message says what needs it, and how to install it."""


def version() -> str:
    """The version of Tenon that runs."""
    return importlib.metadata.version(DISTRIBUTION)


def require(extra: str, purpose: str) -> None:
    """Check that what the extra installs is there. ``purpose`` is what needs it.

    Raises:
        MissingExtraError: it isn't; the message says how to install it.
    """
    if missing := [name for name in EXTRAS[extra] if not _is_installed(name)]:
        raise MissingExtraError(f"{purpose} needs {missing[0]}, which isn't installed: {with_extra(extra)}")


def with_extra(extra: str) -> str:
    """The command that installs Tenon with this extra and those that are there, from a file: no registry has Tenon."""
    extras = [name for name in EXTRAS if name == extra or all(map(_is_installed, EXTRAS[name]))]
    wheel = DISTRIBUTION.replace("-", "_")
    return f"pipx install --force 'dist/{wheel}-{version()}-py3-none-any.whl[{','.join(extras)}]'"


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # it is imported, and doesn't say from where
        return False


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
