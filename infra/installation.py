"""Where Tenon's own files are: in the checkout, or next to its packages where its wheel is installed.

A wheel has the code that goes into the functions' bundles, the relay's Dockerfile, and a copy of requirements.lock in
``infra/`` (distribution/commands.py). An installation may be read-only and is replaced by updates, so it keeps what it
builds in the user's cache.
"""

from __future__ import annotations

from pathlib import Path

import platformdirs

ROOT = Path(__file__).resolve().parent.parent
"""The folder of functions/, infra/, relay/ and shared/: the checkout, or site-packages."""

_LOCK = "requirements.lock"


def lock(root: Path) -> Path:
    """The lock with the versions of the functions' packages."""
    return root / _LOCK if _is_checkout(root) else root / "infra" / _LOCK


def build_folder(root: Path) -> Path:
    """Where bundles and assemblies are built and kept."""
    if _is_checkout(root):
        return root / "build"
    return platformdirs.user_cache_path("tenon", appauthor=False)


def _is_checkout(root: Path) -> bool:
    return not (root / "infra" / _LOCK).is_file()
