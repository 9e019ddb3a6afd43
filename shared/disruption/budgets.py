"""NodePool disruption budgets: how many nodes of a NodePool may be disrupted now.

A budget allows a count or a percentage of the pool's nodes (rounded up), always or while its schedule's window is open,
for some reasons or for all. The lowest limit of the budgets that apply holds. Nodes that are being deleted, queued for
disruption, rebooting or not Ready count against it; for node repair, nodes that are only not Ready don't. A NodePool
with a budget that can't be parsed allows no disruptions; it launches nodes as before. None but node repair is allowed
any while most of the cluster's nodes are not Ready (:func:`unready_blocker`). A NodePool may have windows
(:mod:`shared.disruption.disruption_windows`) and waves of drift (:mod:`shared.disruption.drift_waves`), too. What an
hour may remove (:mod:`shared.api.hourly_limits`) holds for every reason but that a node is empty.
Rules: Karpenter's disruption budgets (reference: docs/facts/karpenter.md, section 5).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.cron import CronError, active, parse_cron
from shared.api.duration import DurationError, parse_duration
from shared.api.hourly_limits import HourlyUse
from shared.api.meta import is_true
from shared.api.nodeclaim import rebooting_nodes
from shared.api.nodepool import REASONS
from shared.api.pause import paused_pools
from shared.base.plurals import plural
from shared.disruption.command import DRIFTED, EMPTY, UNHEALTHY, Blocker
from shared.disruption.disruption_queue import is_queued

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from shared.api.kubernetes import Node
    from shared.api.nodepool import Budget, NodePool
    from shared.disruption.command import Command
    from shared.disruption.drift_waves import Limit
    from shared.snapshot import Snapshot

_PERCENT = 100
_UNREADY_PERCENT = 55
_FEW_NODES = 2


def allowed_disruptions(pool: NodePool, snapshot: Snapshot, *, reason: str, now: datetime) -> int:
    """How many more of the pool's nodes may be disrupted voluntarily now for that reason; 0 or more.

    It is 0 outside the pool's windows, while the pool is paused or most nodes of the cluster are not Ready, and as long
    as a budget has problems.
    """
    if window_blocker(pool, reason=reason, now=now) or unready_blocker(snapshot, reason):
        return 0
    allowed = allowed_by_budgets(pool, snapshot, reason=reason, now=now)
    wave = _wave_limit(pool, snapshot, reason, now)
    return allowed if wave is None else min(allowed, wave.allowed)


def allowed_by_budgets(pool: NodePool, snapshot: Snapshot, *, reason: str, now: datetime) -> int:
    """The same whatever the pool's windows and waves: for nodes that EC2 will take."""
    if paused_pools((pool,), snapshot.pause, now=now) or budget_problems(pool):
        return 0
    rebooting = rebooting_nodes(snapshot.node_claims)
    disrupting_nodes = rebooting | {
        c.status.node_name for c in snapshot.node_claims if c.metadata.deletion_timestamp is not None or is_queued(c)
    }
    total = 0
    unavailable = 0
    for node in snapshot.nodes:
        labels, name = node.metadata.labels, node.metadata.name
        if labels.get(names.NODEPOOL) != pool.name or not (
            labels.get(names.INITIALIZED) == "true" or name in rebooting
        ):
            continue
        total += 1
        is_disrupting = node.metadata.deletion_timestamp is not None or name in disrupting_nodes
        is_unready = reason != UNHEALTHY and not is_true(node.status.conditions, "Ready")
        unavailable += is_disrupting or is_unready
    limit = min(
        (_limit(budget, total) for budget in pool.spec.disruption.budgets if _applies(budget, reason, now)),
        default=total,
    )
    return max(0, limit - unavailable)


def window_blocker(pool: NodePool, *, reason: str, now: datetime) -> str:
    """That the pool's windows hold disruption for the reason now, and until when; empty when they don't."""
    text = pool.metadata.annotations.get(names.DISRUPTION_WINDOWS)
    if text is None or budget_problems(pool):
        return ""
    from shared.disruption.disruption_windows import closed  # noqa: PLC0415 (few NodePools have windows)

    held = closed(text, reason, now)
    return held.message(pool.name, reason) if held is not None else ""


def unready_blocker(snapshot: Snapshot, reason: str) -> str:
    """That most nodes of the cluster are not Ready, so that the cause is not the nodes; empty when they are.

    Node repair has a limit of its own, which NodePools may set (:mod:`shared.disruption.repair_limit`).

    The rule is kube-controller-manager's for a zone that it calls disrupted: more than two nodes, and at least 55 %
    (``ComputeZoneState``, ``--unhealthy-zone-threshold``). Nodes that are joining or going don't count.
    """
    if reason == UNHEALTHY:
        return ""
    ready = [is_true(n.status.conditions, "Ready") for n in snapshot.nodes if _is_established(n)]
    unready = ready.count(False)
    if unready <= _FEW_NODES or unready * _PERCENT < _UNREADY_PERCENT * len(ready):
        return ""
    return f"nothing is disrupted while {unready} of {plural(len(ready), 'node')} in the cluster are not Ready"


def _is_established(node: Node) -> bool:
    """Whether the node has joined, and neither leaves nor reboots."""
    is_going = node.metadata.deletion_timestamp is not None or any(
        t.key in {names.DISRUPTED_TAINT, names.REBOOTING_TAINT} for t in node.spec.taints
    )
    labels = node.metadata.labels
    return not is_going and (names.NODEPOOL not in labels or labels.get(names.INITIALIZED) == "true")


def budget_problems(pool: NodePool) -> tuple[str, ...]:
    """What is wrong with budgets that the API server accepts, with their paths: schedules, durations and windows.

    >>> from shared.api.nodepool import Budget, Disruption, NodePool, NodePoolSpec
    >>> budget = Budget(nodes="0", schedule="0 9 * * fri-mon", duration="8h")
    >>> budget_problems(NodePool(spec=NodePoolSpec(disruption=Disruption(budgets=[budget]))))[0][:35]
    'spec.disruption.budgets[0].schedule'
    """
    of_budgets = tuple(
        f"spec.disruption.budgets[{i}].{problem}"
        for i, budget in enumerate(pool.spec.disruption.budgets)
        for problem in _problems(budget)
    )
    text = pool.metadata.annotations.get(names.DISRUPTION_WINDOWS)
    if text is None:
        return of_budgets
    from shared.disruption import disruption_windows  # noqa: PLC0415 (few NodePools have windows)

    return (*of_budgets, *disruption_windows.problems(text))


def _problems(budget: Budget) -> Iterator[str]:
    if budget.schedule is None:
        return
    try:
        parse_cron(budget.schedule)
    except CronError as error:
        yield f"schedule: {error}"
    try:
        if not parse_duration(budget.duration or ""):
            yield f'duration: "{budget.duration}" is never; allowed are whole minutes and hours, such as 30m or 8h'
    except DurationError as error:
        yield f"duration: {error}"


def is_frozen(pool: NodePool, *, now: datetime) -> bool:
    """Whether a budget for all reasons lets no node of the pool go now, however many it has, or its windows do.

    Its budgets have no problems.

    >>> from datetime import UTC, datetime
    >>> from shared.api.nodepool import Budget, Disruption, NodePool, NodePoolSpec
    >>> weekends = Budget(nodes="0", schedule="0 0 * * sat", duration="48h")
    >>> pool = NodePool(spec=NodePoolSpec(disruption=Disruption(budgets=[weekends])))
    >>> is_frozen(pool, now=datetime(2026, 11, 29, 12, tzinfo=UTC))  # a Sunday
    True
    """
    if window_blocker(pool, reason="", now=now):
        return True
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
        self._unrecorded: Counter[str] = Counter()
        self.hour = HourlyUse(snapshot.last_hour, snapshot.node_pools, snapshot.node_claims, now=now)

    def remaining(self, pool: str, reason: str) -> int:
        """How many more nodes of the pool may be disrupted; 0 for a pool that doesn't exist.

        Hourly limits bound removals of nodes with pods, for whatever reason.
        """
        if pool not in self._pools:
            return 0
        if (pool, reason) not in self._allowed:
            self._allowed[pool, reason] = allowed_disruptions(
                self._pools[pool], self._snapshot, reason=reason, now=self._now
            )
        left = self._allowed[pool, reason] - self._consumed.get(pool, 0)
        if reason != EMPTY:
            of_all = self.hour.removals_left_of_all() - sum(self._unrecorded.values())
            left = min(left, self.hour.removals_left(pool) - self._unrecorded[pool], of_all)
        return max(0, left)

    def blocker(self, pool: str, reason: str) -> Blocker | None:
        """Why no more nodes of the pool may be disrupted now; None when one may."""
        return self.exhausted(pool, reason) if self.remaining(pool, reason) < 1 else None

    def exhausted(self, pool: str, reason: str) -> Blocker:
        """The blocker for a pool whose budgets or windows allow no more disruptions."""
        message = f"disruption budgets of NodePool {pool} allow no more disruptions for reason {reason} now"
        if pool in self._pools:
            hourly = self.hour.removal_problem(pool) if reason != EMPTY else ""
            message = hold(self._pools[pool], self._snapshot, reason=reason, now=self._now) or hourly or message
        return Blocker(message=message, by=f"NodePool {pool}")

    def consume(self, pool: str) -> None:
        """Count one disrupted node of the pool."""
        self._consumed[pool] = self._consumed.get(pool, 0) + 1
        self._unrecorded[pool] += 1

    def record(self, command: Command) -> dict[str, str]:
        """Count a command that is started in the hour; returns the annotations of the Lease that say so."""
        pools = {c.name: c.metadata.labels.get(names.NODEPOOL, "") for c in self._snapshot.node_claims}
        for removal in command.removals:
            pool = pools.get(removal.claim, "")
            self._unrecorded[pool] = max(0, self._unrecorded[pool] - 1)
            if command.reason != EMPTY:
                self.hour.count_removal(pool)
        for planned in command.replacements:
            self.hour.count_launch(planned.node_pool, planned.cheapest.price)
        return self.hour.changes()


def hold(pool: NodePool, snapshot: Snapshot, *, reason: str, now: datetime) -> str:
    """What holds the pool's nodes for the reason now other than used-up budgets; empty: nothing else does."""
    if problems := budget_problems(pool):
        return f"NodePool {pool.name} allows no disruption until its budgets are mended: {'; '.join(problems)}"
    if window := window_blocker(pool, reason=reason, now=now):
        return window
    if unready := unready_blocker(snapshot, reason):
        return unready
    wave = _wave_limit(pool, snapshot, reason, now)
    if wave is None or wave.allowed > allowed_by_budgets(pool, snapshot, reason=reason, now=now):
        return ""
    return wave.message


def _wave_limit(pool: NodePool, snapshot: Snapshot, reason: str, now: datetime) -> Limit | None:
    """What the pool's wave of drift allows; None where it has no waves, or the reason isn't drift."""
    if reason != DRIFTED or names.DRIFT_WAVES not in pool.metadata.annotations:
        return None
    from shared.disruption.drift_waves import limit  # noqa: PLC0415 (few NodePools have waves)

    return limit(pool, snapshot, now=now)


def _applies(budget: Budget, reason: str, now: datetime) -> bool:
    """Whether the budget, which has no problems, limits disruptions for that reason now."""
    if budget.reasons and reason not in budget.reasons and set(budget.reasons) <= set(REASONS):
        return False
    if budget.schedule is None:
        return True
    length = parse_duration(budget.duration or "")
    return length is None or active(budget.schedule, length, now)


def _limit(budget: Budget, total: int) -> int:
    """How many nodes the budget allows; 0 when its value can't be parsed or is out of range.

    >>> from shared.api.nodepool import Budget
    >>> _limit(Budget(nodes="10%"), 25), _limit(Budget(nodes="5"), 25)
    (3, 5)
    """
    text = budget.nodes.strip()
    try:
        if text.endswith("%"):
            percent = int(text[:-1])
            return -(-total * percent // _PERCENT) if 0 <= percent <= _PERCENT else 0
        return int(text)
    except ValueError:
        return 0
