"""Where files go that can be made again: ``build`` in the checkout, or in the user's cache where Tenon is installed."""

from __future__ import annotations

from pathlib import Path

import platformdirs

_PARENT = Path(__file__).resolve().parent.parent


def root() -> Path:
    """The folder whose ``build`` it is."""
    if (_PARENT / "pyproject.toml").is_file():
        return _PARENT
    return platformdirs.user_cache_path("tenon", appauthor=False)


def build() -> Path:
    """The folder; it may not exist yet."""
    return root() / "build"
