"""How long consolidation isn't searched again after it found nothing: the search costs seconds of processor time.

Warm execution environments remember it; a new one searches once.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import TYPE_CHECKING

from shared.base.struct import Struct
from shared.disruption.candidates import disruption_blocker
from shared.disruption.command import UNDERUTILIZED
from shared.scheduling.buffers.chunks import resolved_buffers

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from shared.disruption.budgets import BudgetTracker
    from shared.disruption.candidates import Candidate
    from shared.disruption.disruption_state import DisruptionState

_MIN_TTL, _MAX_TTL = timedelta(minutes=1), timedelta(minutes=10)
"""Prices may change in the meantime."""


class NoSavings(Struct, kw_only=True):
    """Consolidation found nothing at ``searched_at``, in a cluster that is as it was ``since`` then.

    ``next_savings_at`` is when a set of nodes pays back at the earliest; None if the search ended before it knew.
    """

    fingerprint: str
    since: datetime
    searched_at: datetime
    next_savings_at: datetime | None = None

    @property
    def until(self) -> datetime:
        """When to search again.

        Without ``next_savings_at``: when the cluster is unchanged for twice as long.
        """
        wait = self.searched_at - self.since
        if self.next_savings_at is not None:
            wait = self.next_savings_at - self.searched_at
        return self.searched_at + min(max(wait, _MIN_TTL), _MAX_TTL)


def fingerprint(state: DisruptionState, due: Iterable[Candidate], budgets: BudgetTracker) -> str:
    """A hash of all that consolidation depends on, except prices and time; ``due`` are the due candidates."""
    snapshot = state.snapshot
    parts = [
        *(f"{p.metadata.uid}@{p.metadata.generation}@{p.spec.node_name}" for p in snapshot.pods),
        *(c.metadata.uid for c in snapshot.node_claims),
        *(f"{p.metadata.uid}@{p.metadata.generation}" for p in snapshot.node_pools),
        *(f"{name}@{amount}" for name, amount in snapshot.cluster_limits.items()),
        *(f"{p.name}@{budgets.remaining(p.name, UNDERUTILIZED)}" for p in snapshot.node_pools),
        *(f"{b.metadata.uid}@{b.status.disruptions_allowed}" for b in snapshot.pod_disruption_budgets),
        *(f"{b.objects.buffer.metadata.uid}@{b.chunks}@{b.template}" for b in resolved_buffers(snapshot)),
        *(f"{pool}@{e.is_limit}@{e.since}@{e.why}" for pool, e in state.evidence.items()),
        *(f"unblocked {c.name}" for c in due if disruption_blocker(state, c) is None),
    ]
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()
