"""The build backend: that of setuptools, where building a wheel also needs what synthesises the demo's stack.

Its packages and its metadata are in one import package (layout.py). An editable installation (`make setup`) needs none
of it, and has no assets: a checkout synthesises by itself.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
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
    """What commands.py runs needs to be installed: Tenon's own dependencies, and those of two extras."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    own = [*project["dependencies"], *extras["deploy"], *extras["demo"]]
    return [*build_meta.get_requires_for_build_wheel(config_settings), *own]


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """Write the wheel's metadata, which name its import package; returns the folder's name."""
    name: str = build_meta.prepare_metadata_for_build_wheel(metadata_directory, config_settings)
    command = [sys.executable, "-m", "distribution.layout", "metadata", str(Path(metadata_directory).resolve() / name)]
    subprocess.run(command, check=True)  # noqa: S603 (our own arguments)
    return name


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Build the wheel with the metadata that were prepared; returns the file's name."""
    if metadata_directory is not None:
        built: str = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
        return built
    with tempfile.TemporaryDirectory() as folder:
        name = prepare_metadata_for_build_wheel(folder, config_settings)
        return build_wheel(wheel_directory, config_settings, str(Path(folder) / name))
