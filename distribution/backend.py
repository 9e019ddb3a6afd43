"""The build backend: that of setuptools, where building a wheel also needs what synthesises the demo's stack.

An editable installation (`make setup`) needs none of it, and has no assets: a checkout synthesises by itself.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """What commands.py runs needs to be installed: Tenon's own dependencies, and those of its extra infra."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    own = [*project["dependencies"], *project["optional-dependencies"]["infra"]]
    return [*build_meta.get_requires_for_build_wheel(config_settings), *own]
