"""How many nodes of a pool may be disrupted right now.

A budget allows a count or a share of the pool's nodes (rounded up), always or while its schedule's window is open,
for some reasons or for all. The least of those that apply holds, and nodes that are leaving or unready already count
against it. Rules: Karpenter's disruption budgets (reference: karpenter.md, section 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.cron import CronError, active
from shared.api.duration import DurationError, parse_duration
from shared.api.meta import is_true

if TYPE_CHECKING:
    from datetime import datetime

    from shared.api.nodepool import Budget, NodePool
    from shared.snapshot import Snapshot


def allowed(pool: NodePool, snapshot: Snapshot, *, reason: str, now: datetime) -> int:
    """How many more of the pool's nodes may go now for that reason; 0 or more."""
    leaving = {c.status.node_name for c in snapshot.node_claims if c.metadata.deletion_timestamp is not None}
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


def _applies(budget: Budget, reason: str, now: datetime) -> bool:
    if budget.reasons and reason not in budget.reasons:
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
    """The count that a budget allows; what can't be read allows none."""
    text = budget.nodes.strip()
    try:
        if text.endswith("%"):
            return -(-total * int(text[:-1]) // 100)
        return int(text)
    except ValueError:
        return 0
