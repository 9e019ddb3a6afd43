"""The part of requirements.lock that a bundle needs, with the same versions and hashes.

The lock names the parents of each package ("via"), so dependencies are resolved without a package index. Environment
markers are evaluated for Lambda's Python and platform, not for the machine that builds the bundle, as pip would.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.markers import Marker
from packaging.utils import canonicalize_name

from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Collection

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)(?: ; (?P<marker>[^\\]+?))? \\$")
_HASH = re.compile(r"^ +(?P<hash>--hash=\S+)")

LAMBDA = {
    "implementation_name": "cpython",
    "implementation_version": "3.13.0",
    "os_name": "posix",
    "platform_machine": "aarch64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.13.0",
    "python_version": "3.13",
    "sys_platform": "linux",
}
"""The values for environment markers (https://packaging.python.org/en/latest/specifications/)."""


class LockError(ValueError):
    """A package is not in the lock; the message names it."""


class Pin(Struct, kw_only=True):
    """One package of the lock that applies to Lambda's Python."""

    name: str
    version: str
    hashes: tuple[str, ...]
    via: frozenset[str]


def parse(text: str) -> dict[str, Pin]:
    """The lock's packages that apply to Lambda, by normalised name."""
    pins: dict[str, Pin] = {}
    match: re.Match[str] | None = None
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        if match is not None and (_HASH.match(line) or line.startswith("    #")):
            lines.append(line)
            continue
        if match is not None and (pin := _pin(match, lines)) is not None:
            pins[pin.name] = pin
        match, lines = _PIN.match(line), []
    return pins


def _pin(match: re.Match[str], lines: list[str]) -> Pin | None:
    """The package of a pin and the lines below it; None if its marker doesn't apply to Lambda."""
    if match["marker"] is not None and not Marker(match["marker"]).evaluate(dict(LAMBDA)):
        return None
    hashes = [hash_match["hash"] for line in lines if (hash_match := _HASH.match(line))]
    parents = [line.strip(" #").removeprefix("via").strip() for line in lines if line.startswith("    #")]
    return Pin(
        name=canonicalize_name(match["name"]),
        version=match["version"],
        hashes=tuple(hashes),
        via=frozenset(canonicalize_name(parent.partition(" ")[0].partition("[")[0]) for parent in parents),
    )


def closure(pins: dict[str, Pin], roots: Collection[str], *, without: Collection[str] = ()) -> tuple[Pin, ...]:
    """The roots and their dependencies, by name; packages in ``without`` and their dependencies are left out.

    Raises:
        LockError: a root is not in the lock.
    """
    excluded: set[str] = {canonicalize_name(name) for name in without}
    chosen = {str(canonicalize_name(name)) for name in roots} - excluded
    for name in chosen:
        if name not in pins:
            raise LockError(f"{name} is not in requirements.lock for Python 3.13 on arm64: run make lock")
    while more := {pin.name for pin in pins.values() if pin.via & chosen} - chosen - excluded:
        chosen |= more
    return tuple(pins[name] for name in sorted(chosen))


def requirements(pins: Collection[Pin]) -> str:
    """A requirements file for exactly these packages."""
    return "".join(f"{pin.name}=={pin.version} {' '.join(pin.hashes)}\n" for pin in pins)
