"""NodePool disruption budgets: how many nodes of a NodePool may be disrupted now.

A budget allows a count or a percentage of the pool's nodes (rounded up), always or while its schedule's window is open,
for some reasons or for all. The lowest limit of the budgets that apply holds. Nodes that are being deleted, queued for
disruption or not Ready count against it. A budget that can't be parsed allows no disruptions. Rules: Karpenter's
disruption budgets (reference: docs/facts/karpenter.md, section 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.cron import CronError, active
from shared.api.duration import DurationError, parse_duration
from shared.api.meta import is_true
from shared.api.nodepool import REASONS
from shared.api.pause import paused_pools
from shared.disruption.command import Blocker
from shared.disruption.disruption_queue import is_queued

if TYPE_CHECKING:
    from datetime import datetime

    from shared.api.nodepool import Budget, NodePool
    from shared.snapshot import Snapshot

_PERCENT = 100


def allowed_disruptions(pool: NodePool, snapshot: Snapshot, *, reason: str, now: datetime) -> int:
    """How many more of the pool's nodes may be disrupted now for that reason; 0 or more, and 0 while it is paused."""
    if paused_pools((pool,), snapshot.pause, now=now):
        return 0
    disrupting_nodes = {
        c.status.node_name for c in snapshot.node_claims if c.metadata.deletion_timestamp is not None or is_queued(c)
    }
    total = 0
    unavailable = 0
    for node in snapshot.nodes:
        labels = node.metadata.labels
        if labels.get(names.NODEPOOL) != pool.name or labels.get(names.INITIALIZED) != "true":
            continue
        total += 1
        is_disrupting = node.metadata.deletion_timestamp is not None or node.metadata.name in disrupting_nodes
        unavailable += is_disrupting or not is_true(node.status.conditions, "Ready")
    limit = min(
        (_limit(budget, total) for budget in pool.spec.disruption.budgets if _applies(budget, reason, now)),
        default=total,
    )
    return max(0, limit - unavailable)


def is_frozen(pool: NodePool, *, now: datetime) -> bool:
    """Whether a budget for all reasons lets no node of the pool go now, however many it has: a freeze window."""
    budgets = (b for b in pool.spec.disruption.budgets if not b.reasons and _applies(b, "", now))
    return any(_limit(budget, 1) < 1 for budget in budgets)


class BudgetTracker:
    """Counts what the budgets still allow during one reconcile.

    Every node that is chosen for disruption consumes one disruption of its pool, whatever the reason.
    """

    def __init__(self, snapshot: Snapshot, *, now: datetime) -> None:
        self._snapshot = snapshot
        self._now = now
        self._pools = {p.name: p for p in snapshot.node_pools}
        self._allowed: dict[tuple[str, str], int] = {}
        self._consumed: dict[str, int] = {}

    def remaining(self, pool: str, reason: str) -> int:
        """How many more nodes of the pool may be disrupted; 0 for a pool that doesn't exist."""
        if pool not in self._pools:
            return 0
        if (pool, reason) not in self._allowed:
            self._allowed[pool, reason] = allowed_disruptions(
                self._pools[pool], self._snapshot, reason=reason, now=self._now
            )
        return max(0, self._allowed[pool, reason] - self._consumed.get(pool, 0))

    def blocker(self, pool: str, reason: str) -> Blocker | None:
        """Why no more nodes of the pool may be disrupted now; None when one may."""
        return budget_blocker(pool, reason) if self.remaining(pool, reason) < 1 else None

    def consume(self, pool: str) -> None:
        """Count one disrupted node of the pool."""
        self._consumed[pool] = self._consumed.get(pool, 0) + 1


def budget_blocker(pool: str, reason: str) -> Blocker:
    """The blocker for a pool whose budgets allow no more disruptions."""
    message = f"disruption budgets of NodePool {pool} allow no more disruptions for reason {reason} now"
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
        # Fails closed: a window that can't be parsed counts as open, so its limit applies.
        return True


def _limit(budget: Budget, total: int) -> int:
    """How many nodes the budget allows; 0 when its value can't be parsed or is out of range."""
    text = budget.nodes.strip()
    try:
        if text.endswith("%"):
            percent = int(text[:-1])
            return -(-total * percent // _PERCENT) if 0 <= percent <= _PERCENT else 0
        return int(text)
    except ValueError:
        return 0
