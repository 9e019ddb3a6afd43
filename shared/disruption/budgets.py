"""How many nodes of a pool may be disrupted right now.

A budget allows a count or a share of the pool's nodes (rounded up), always or while its schedule's window is open,
for some reasons or for all. The least of those that apply holds, and nodes that are leaving, about to leave or unready
already count against it. What can't be read allows nothing. Rules: Karpenter's disruption budgets (reference:
karpenter.md, section 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.cron import CronError, active
from shared.api.duration import DurationError, parse_duration
from shared.api.meta import is_true
from shared.api.nodepool import REASONS
from shared.disruption.command import Blocker
from shared.disruption.disruption_queue import is_queued

if TYPE_CHECKING:
    from datetime import datetime

    from shared.api.nodepool import Budget, NodePool
    from shared.snapshot import Snapshot

_WHOLE = 100


def allowed_disruptions(pool: NodePool, snapshot: Snapshot, *, reason: str, now: datetime) -> int:
    """How many more of the pool's nodes may go now for that reason; 0 or more."""
    leaving = {
        c.status.node_name for c in snapshot.node_claims if c.metadata.deletion_timestamp is not None or is_queued(c)
    }
    total = 0
    missing = 0
    for node in snapshot.nodes:
        if node.metadata.labels.get(names.NODEPOOL) != pool.name:
            continue
        if node.metadata.labels.get(names.INITIALIZED) != "true":
            continue
        total += 1
        going = node.metadata.deletion_timestamp is not None or node.metadata.name in leaving
        missing += going or not is_true(node.status.conditions, "Ready")
    most = min(
        (_most(budget, total) for budget in pool.spec.disruption.budgets if _applies(budget, reason, now)),
        default=total,
    )
    return max(0, most - missing)


class BudgetTracker:
    """What the budgets leave during one look: every node that is chosen takes one, whatever the reason."""

    def __init__(self, snapshot: Snapshot, *, now: datetime) -> None:
        self._snapshot = snapshot
        self._now = now
        self._pools = {p.name: p for p in snapshot.node_pools}
        self._allowed: dict[tuple[str, str], int] = {}
        self._taken: dict[str, int] = {}

    def remaining(self, pool: str, reason: str) -> int:
        """How many more nodes of the pool may go; none of a pool that nobody knows."""
        if pool not in self._pools:
            return 0
        if (pool, reason) not in self._allowed:
            self._allowed[pool, reason] = allowed_disruptions(
                self._pools[pool], self._snapshot, reason=reason, now=self._now
            )
        return max(0, self._allowed[pool, reason] - self._taken.get(pool, 0))

    def blocker(self, pool: str, reason: str) -> Blocker | None:
        """Why no more nodes of the pool may go now; None when one may."""
        return budget_blocker(pool, reason) if self.remaining(pool, reason) < 1 else None

    def consume(self, pool: str) -> None:
        """One of the pool's nodes goes."""
        self._taken[pool] = self._taken.get(pool, 0) + 1


def budget_blocker(pool: str, reason: str) -> Blocker:
    """What is said when a pool's budgets allow no more."""
    message = f"the disruption budgets of NodePool {pool} allow no more {reason} nodes now"
    return Blocker(message=message, by=f"NodePool {pool}")


def _applies(budget: Budget, reason: str, now: datetime) -> bool:
    if budget.reasons and reason not in budget.reasons and set(budget.reasons) <= set(REASONS):
        return False
    if budget.schedule is None:
        return True
    try:
        length = parse_duration(budget.duration or "")
        return length is None or active(budget.schedule, length, now)
    except (CronError, DurationError):
        # Fails closed: a window that nobody can read is taken as open, with its limit in force.
        return True


def _most(budget: Budget, total: int) -> int:
    """The count that a budget allows; what can't be read, or means nothing, allows none."""
    text = budget.nodes.strip()
    try:
        if text.endswith("%"):
            percent = int(text[:-1])
            return -(-total * percent // _WHOLE) if 0 <= percent <= _WHOLE else 0
        return int(text)
    except ValueError:
        return 0
