"""What provisioning came to: for log lines and metrics, and for callers that must know whose pods have no place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.launch.fleet import Failed, Launched
    from shared.snapshot import Snapshot


@dataclass(kw_only=True)
class Report:
    """``unplaced`` are the pods (namespace/name) that the last decision found no place for.

    ``unfilled`` are claims of the last round that wait for an instance, or that EC2 refused one. ``arriving`` has the
    claim's name for each pod that it placed on a machine that is still to come; ``seen`` is the cluster as it saw it.
    ``decision_seconds`` is the slowest decision, ``slowest_claim`` the longest wait of a pod for its claim (s).
    """

    claims_created: int = 0
    decision_seconds: float = 0.0
    slowest_claim: float | None = None
    launched: list[Launched] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    unplaced: frozenset[str] = frozenset()
    unfilled: frozenset[str] = frozenset()
    arriving: Mapping[str, str] = field(default_factory=dict)
    seen: Snapshot | None = None

    @property
    def throttled(self) -> bool:
        """Whether EC2 asked to wait: whoever woke us should come back."""
        return any(f.kind == "throttled" for f in self.failed)
