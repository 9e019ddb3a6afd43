"""What ``make test`` and ``make test-all`` run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A run of pytest: its arguments and environment, and the folders of its tests. ``target`` is that of make.

    ``longest``: a test that takes more seconds hangs.
    """

    target: str
    arguments: tuple[str, ...]
    folders: tuple[str, ...] = ("tests",)
    environ: Mapping[str, str] = field(default_factory=dict)
    longest: float = 600


TEST = Suite(
    target="make test",
    arguments=("-m", "not long and not real and (flow or not e2e)", "--ignore", "tests/local"),
)
LONG = Suite(target="make test-all", arguments=("-m", "not real"), longest=2400)
HOSTILE = Suite(
    target="make test-all (hostile)",
    arguments=("-m", "not long and not real and not calm_world"),
    folders=("tests/e2e",),
    environ={"TENON_HOSTILE": "1"},
)
