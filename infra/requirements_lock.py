"""The part of requirements.lock that a bundle needs: the same versions and hashes as everywhere else.

The lock says which package is there because of which ("via"), so the part is closed without asking an index. Its
markers are judged for Lambda's Python and platform, not for the machine that bundles; pip would judge them for that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.markers import Marker
from packaging.utils import canonicalize_name

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
"""What environment markers are judged by (https://packaging.python.org/en/latest/specifications/)."""


class LockError(ValueError):
    """The lock doesn't hold what is asked of it; the text names the package."""


@dataclass(frozen=True, kw_only=True)
class Pin:
    """One package of the lock that Lambda's Python would install."""

    name: str
    version: str
    hashes: tuple[str, ...]
    via: frozenset[str]


def parse(text: str) -> dict[str, Pin]:
    """The lock's packages that apply on Lambda, by normalised name."""
    pins: dict[str, Pin] = {}
    lines = iter([*text.splitlines(), ""])
    line = next(lines)
    while True:
        if match := _PIN.match(line):
            hashes: list[str] = []
            via: set[str] = set()
            for line in lines:
                if found := _HASH.match(line):
                    hashes.append(found["hash"])
                elif line.startswith("    #"):
                    parent = line.strip(" #").removeprefix("via").strip()
                    via.add(canonicalize_name(parent.partition(" ")[0].partition("[")[0]))
                else:
                    break
            if match["marker"] is None or Marker(match["marker"]).evaluate(dict(LAMBDA)):
                name = canonicalize_name(match["name"])
                pins[name] = Pin(name=name, version=match["version"], hashes=tuple(hashes), via=frozenset(via))
            continue
        following = next(lines, None)
        if following is None:
            return pins
        line = following


def closure(pins: dict[str, Pin], roots: Collection[str], *, without: Collection[str] = ()) -> tuple[Pin, ...]:
    """The roots and all that they bring, by name; what is ``without`` brings nothing either.

    Raises:
        LockError: a root is not in the lock.
    """
    left_out: set[str] = {canonicalize_name(name) for name in without}
    chosen = {str(canonicalize_name(name)) for name in roots} - left_out
    for name in chosen:
        if name not in pins:
            raise LockError(f"{name} is not in requirements.lock for Python 3.13 on arm64: run make lock")
    while more := {pin.name for pin in pins.values() if pin.via & chosen} - chosen - left_out:
        chosen |= more
    return tuple(pins[name] for name in sorted(chosen))


def requirements(pins: Collection[Pin]) -> str:
    """A requirements file that installs exactly these."""
    return "".join(f"{pin.name}=={pin.version} {' '.join(pin.hashes)}\n" for pin in pins)
