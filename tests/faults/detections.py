"""Which test noticed a fault the last time: the runner tries it first."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import yaml

from tests.faults.checkout_copy import CHECKOUT, HANGS
from tests.faults.fault import FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping

_PATH = FOLDER / "detections.yaml"
_HEADER = (
    "# Written by `python -m tests.faults --record`: the first test that noticed each fault, and its target of make.\n"
)


@dataclass(frozen=True, kw_only=True)
class Detection:
    """The first test that noticed a fault, and the target of make that runs it."""

    target: str
    test: str

    @property
    def hangs(self) -> bool:
        """Whether the test didn't fail, but never ended."""
        return self.test.endswith(HANGS)

    @property
    def function(self) -> str:
        """The test with all its parameters, as pytest takes it; "" if its file has no such function any more."""
        name = self.test.removesuffix(HANGS).partition("[")[0]
        path = CHECKOUT / name.partition("::")[0]
        exists = path.is_file() and f"def {name.rpartition('::')[2]}(" in path.read_text(encoding="utf-8")
        return name if exists else ""


def load() -> dict[str, Detection]:
    """By fault; empty if none is recorded."""
    stored = yaml.safe_load(_PATH.read_text(encoding="utf-8")) if _PATH.exists() else None
    return {fault: Detection(**entry) for fault, entry in (stored or {}).items()}


def save(by_fault: Mapping[str, Detection]) -> None:
    """Record them, by fault."""
    entries = {fault: asdict(detection) for fault, detection in sorted(by_fault.items())}
    _PATH.write_text(_HEADER + yaml.safe_dump(entries, sort_keys=False, width=1000), encoding="utf-8")
