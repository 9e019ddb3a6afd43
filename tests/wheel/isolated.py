"""A virtual environment with a wheel and exactly the distributions that it declares, taken from the running one.

Nothing is downloaded: each declared distribution, and each that those declare, is a link. What isn't declared can't be
imported, which an installation into the running environment would not show.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


def closure(requirements: Iterable[str]) -> set[str]:
    """The names of the distributions that these requirements need on this machine, with those of their extras."""
    pending = [Requirement(text) for text in requirements]
    seen: set[tuple[str, str]] = set()
    while pending:
        requirement = pending.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        for extra in ("", *requirement.extras):
            name = canonicalize_name(requirement.name)
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for text in importlib.metadata.requires(name) or ():
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    needed.marker = None
                    pending.append(needed)
    return {name for name, _ in seen}


def _of_extras(declared: Iterable[str], extras: Sequence[str]) -> Iterator[str]:
    """The requirements without extras and of these."""
    for text in declared:
        requirement = Requirement(text)
        if any(requirement.marker is None or requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            requirement.marker = None
            yield str(requirement)


def size(commands: Path) -> int:
    """The bytes of the installed files, as `uv` and `pip --no-compile` install them: without bytecode."""
    (packages,) = commands.parent.glob("lib/python*/site-packages")
    total = 0
    for folder, folders, files in os.walk(packages, followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        total += sum(Path(folder, name).stat().st_size for name in files if not name.endswith(".pyc"))
    return total


def size_of(distribution: str) -> int:
    """The bytes of a distribution's files, without bytecode."""
    files = importlib.metadata.distribution(distribution).files or ()
    return sum(Path(str(path.locate())).stat().st_size for path in files if path.suffix != ".pyc")


def only_for(distribution: str) -> set[str]:
    """The dependency of Tenon's core, and what only it needs."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    unrelated = [text for text in project["dependencies"] if canonicalize_name(Requirement(text).name) != distribution]
    return closure([distribution]) - closure(unrelated)


def distributions(commands: Path) -> set[str]:
    """The names of the distributions that are installed."""
    (packages,) = commands.parent.glob("lib/python*/site-packages")
    return {canonicalize_name(path.name.split("-")[0]) for path in packages.glob("*.dist-info")}


def create(folder: Path, wheel: Path, *, extras: Sequence[str] = ()) -> Path:
    """Create the environment with these extras in the folder; the folder of its commands."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(python)]
    # a checkout on PYTHONPATH would count as installed
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], env=environ, check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    metadata = next(packages.glob("tenon_eks-*.dist-info")) / "METADATA"
    declared = importlib.metadata.PathDistribution(metadata.parent).requires or []
    for name in closure(_of_extras(declared, extras)):
        for path in importlib.metadata.distribution(name).files or ():
            top = path.parts[0]
            link = packages / top
            if top in {"..", "__pycache__"} or link.exists():
                continue
            link.symlink_to(Path(str(importlib.metadata.distribution(name).locate_file(top))).resolve())
    return python.parent
