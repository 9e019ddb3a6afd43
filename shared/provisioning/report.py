"""What provisioning came to: for log lines and metrics, and for callers that must know whose pods have no place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared.launch.fleet import Failed, Launched


@dataclass(kw_only=True)
class Report:
    """``unplaced`` are the pods (namespace/name) that the last decision found no place for.

    ``unfilled`` are claims of the last round that wait for an instance, or that EC2 refused one.
    """

    claims_created: int = 0
    launched: list[Launched] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    unplaced: frozenset[str] = frozenset()
    unfilled: frozenset[str] = frozenset()

    @property
    def throttled(self) -> bool:
        """Whether EC2 asked to wait: whoever woke us should come back."""
        return any(f.kind == "throttled" for f in self.failed)
