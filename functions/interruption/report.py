"""What a batch came to, for its log line and metrics."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(kw_only=True)
class Report:
    """Counts of machines, but ``foreign``, ``stale``, ``doubled`` and ``malformed``, which are messages."""

    given_up: int = 0
    marked: int = 0
    moved: int = 0
    cordoned: int = 0
    replacements: int = 0
    foreign: int = 0
    stale: int = 0
    doubled: int = 0
    malformed: int = 0

    def as_dict(self) -> dict[str, int]:
        """By name."""
        return asdict(self)
