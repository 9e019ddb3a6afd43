"""Repair policies: which conditions of a node are unhealthy, for how long they are tolerated, and what is done then.

The table is that of Karpenter's AWS provider 1.15.1 (pkg/cloudprovider/cloudprovider.go). How policies match conditions
and merge into one decision for a node is Karpenter's (pkg/controllers/node/health/policy.go; reference:
docs/facts/karpenter-1.15.md, rows repair-policies, repair-order and repair-tolerations).
"""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from shared.base.struct import Struct
from shared.disruption.command import REBOOT, REPLACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shared.api.kubernetes import Node
    from shared.api.meta import Condition

RANK_TIME = timedelta(minutes=30)
"""A node that waits this long overtakes one whose policy is a rank higher."""
_LONG, _SHORT = timedelta(minutes=30), timedelta(minutes=10)
_UNKNOWN = datetime.min.replace(tzinfo=UTC)
"""The time of what says no time."""


class RepairPolicy(Struct, kw_only=True):
    """What is done about a node whose condition ``type`` has had ``status`` for longer than ``toleration``.

    ``reason`` is a regular expression, searched for anywhere in the condition's reason. Exactly one policy of a table
    has none: the fallback, for reasons that no other policy of the same type and status matches. ``grace_period``
    bounds the drain, None: as the NodeClaim says. Of ``priority`` (0 to 100) only the order counts.
    """

    type: str
    status: str = "False"
    reason: str = ".*"
    toleration: timedelta = _LONG
    grace_period: timedelta | None = timedelta(minutes=10)
    priority: int = 0
    action: str = REPLACE


POLICIES: tuple[RepairPolicy, ...] = (
    RepairPolicy(type="Ready"),
    RepairPolicy(type="Ready", status="Unknown"),
    # The node monitoring agent of EKS writes the others. It gives the XID of a GPU's fault as the reason: these
    # faults are gone after a reboot.
    RepairPolicy(
        type="AcceleratedHardwareReady",
        reason="XID(46|48|54|62|63|95|109|110|136|140|143|155|156|158)",
        toleration=_SHORT,
        grace_period=timedelta(minutes=5),
        action=REBOOT,
    ),
    # These need another machine.
    RepairPolicy(
        type="AcceleratedHardwareReady",
        reason="XID(64|74|79|119|120)",
        toleration=_SHORT,
        grace_period=timedelta(minutes=5),
    ),
    RepairPolicy(type="AcceleratedHardwareReady", reason=""),
    RepairPolicy(type="StorageReady"),
    RepairPolicy(type="NetworkingReady"),
    RepairPolicy(type="KernelReady"),
    RepairPolicy(type="ContainerRuntimeReady"),
)


class RepairMatch(Struct, kw_only=True):
    """A policy that matches a condition of a node. ``since`` is when the condition, or the node, began."""

    policy: RepairPolicy
    condition: Condition
    since: datetime
    rank: int

    @property
    def eligible_at(self) -> datetime:
        """When the policy's toleration is over."""
        return self.since + self.policy.toleration


class RepairDecision(Struct, kw_only=True):
    """What is done with an unhealthy node: ``action``, because of ``condition``, which is tolerated no longer.

    ``score`` orders nodes: the highest is repaired first.
    """

    action: str
    condition: Condition
    eligible_at: datetime
    toleration: timedelta
    grace_period: timedelta | None
    score: float

    @property
    def message(self) -> str:
        """Why, for users."""
        reason = f" ({self.condition.reason})" if self.condition.reason else ""
        return f"condition {self.condition.type} has been {self.condition.status}{reason} for {self.toleration}"


def repair_matches(node: Node, policies: tuple[RepairPolicy, ...] = POLICIES) -> tuple[RepairMatch, ...]:
    """The policies that match the node's conditions now, whatever they tolerate; empty for a healthy node."""
    table, ranks = _by_condition(policies), _ranks(policies)
    return tuple(
        RepairMatch(policy=policy, condition=condition, since=_since(condition, node), rank=ranks[policy.priority])
        for condition in node.status.conditions
        for policy in _matching(condition, table.get((condition.type, condition.status), ()), policies)
    )


def repair_decision(
    matches: Iterable[RepairMatch], *, now: datetime, not_before: datetime | None = None
) -> RepairDecision | None:
    """The decision of all matches whose toleration is over, merged; None while there is none.

    Replacement goes before a reboot, then the higher priority, then the earlier one. The drain has the shortest of the
    grace periods. ``not_before``: tolerations count from then at the earliest.
    """
    eligible = [(at, m) for m in matches if (at := _eligible_at(m, not_before)) <= now]
    if not eligible:
        return None
    at, chosen = min(eligible, key=lambda item: _precedence(*item))
    grace_periods = (m.policy.grace_period for _, m in eligible)
    return RepairDecision(
        action=chosen.policy.action,
        condition=chosen.condition,
        eligible_at=at,
        toleration=chosen.policy.toleration,
        grace_period=min((g for g in grace_periods if g is not None), default=None),
        score=max(m.rank + (now - at) / RANK_TIME for at, m in eligible),
    )


def eligible_times(matches: Iterable[RepairMatch], not_before: datetime | None) -> Iterator[datetime]:
    """When the toleration of each match is over, as in :func:`repair_decision`."""
    return (_eligible_at(match, not_before) for match in matches)


def _precedence(at: datetime, match: RepairMatch) -> tuple[bool, int, datetime, str]:
    """The lowest gives the action and the cause."""
    return match.policy.action != REPLACE, -match.policy.priority, at, match.condition.type


def _eligible_at(match: RepairMatch, not_before: datetime | None) -> datetime:
    return match.eligible_at if not_before is None else max(match.since, not_before) + match.policy.toleration


def _since(condition: Condition, node: Node) -> datetime:
    """A condition isn't older than its node, whatever it says."""
    times = (condition.last_transition_time, node.metadata.creation_timestamp)
    return max((t for t in times if t is not None), default=_UNKNOWN)


def _matching(
    condition: Condition, candidates: tuple[RepairPolicy, ...], policies: tuple[RepairPolicy, ...]
) -> Iterator[RepairPolicy]:
    matching = [p for p in candidates if p.reason and re.search(p.reason, condition.reason)]
    yield from matching
    if candidates and not matching:
        yield from (p for p in policies if not p.reason)


@functools.lru_cache(maxsize=16)
def _by_condition(policies: tuple[RepairPolicy, ...]) -> dict[tuple[str, str], tuple[RepairPolicy, ...]]:
    keys = {(p.type, p.status) for p in policies}
    return {key: tuple(p for p in policies if (p.type, p.status) == key) for key in keys}


@functools.lru_cache(maxsize=16)
def _ranks(policies: tuple[RepairPolicy, ...]) -> dict[int, int]:
    return {priority: rank for rank, priority in enumerate(sorted({p.priority for p in policies}))}
