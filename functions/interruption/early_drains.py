"""Which nodes are drained before EC2 interrupts them: those at risk, and those with scheduled maintenance.

The announcements are annotations on the NodeClaims, so a wave is worked off over minutes and survives any invocation.
At most a tenth of a NodePool's nodes, and what its disruption budgets and hourly limits allow, are drained at a time.
Maintenance that starts soon comes first, whatever budgets or pauses say, but only if EC2 lists it as a scheduled event
of the instance: one message of AWS Health may name every instance, and messages aren't signed. What a rebalance
recommendation does is the NodePool's policy (:mod:`functions.interruption.rebalance_policy`). Karpenter drains at once
on scheduled changes.
Source of the limits: ours.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from functions.interruption.rebalance_policy import RebalancePolicy, rebalance_policy
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.hourly_limits import HourlyUse
from shared.api.meta import is_true, parse_timestamp
from shared.api.pause import paused_pools
from shared.api.pods import is_protected, is_terminal
from shared.base.struct import MutableStruct, Struct
from shared.cloud_provider import instance_id
from shared.disruption.budgets import allowed_by_budgets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from shared.api.kubernetes import Node, Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.snapshot import Snapshot

AT_RISK = "tenon.sh/rebalance-recommended"
"""Annotation on a NodeClaim: when EC2 recommended replacing its instance (RFC 3339)."""
MAINTENANCE = "tenon.sh/maintenance-starts"
"""Annotation on a NodeClaim: when the maintenance of its instance starts (RFC 3339)."""

RECOMMENDATION_VALIDITY = timedelta(minutes=20)
"""How long a recommendation counts: EC2 mostly interrupts the instance within that time or not at all."""
IMMINENT = timedelta(hours=1)
"""Maintenance that starts within that time ignores disruption budgets."""
_POOL_FRACTION = 10
_DISRUPTION_REASON = "Drifted"
"""The budgets of this reason apply: an instance with announced maintenance no longer is as it should be."""


class EarlyDrain(Struct, kw_only=True):
    """A node to drain ("" before it has registered). ``deadline``: when its instance is interrupted, if known.

    ``forced`` nodes are drained even if their pods don't fit elsewhere yet. ``confirmed``: EC2 lists the maintenance.
    """

    claim: NodeClaim
    node: str
    deadline: datetime | None = None
    forced: bool = False
    at_risk: bool = False
    confirmed: bool = False


class EarlyDrainPlan(Struct, kw_only=True):
    """The nodes to drain now, and the nodes to cordon."""

    drains: tuple[EarlyDrain, ...] = ()
    cordon: tuple[Node, ...] = ()


def is_marked(claim: NodeClaim, *, now: datetime) -> bool:
    """Whether the NodeClaim has an announcement for which it may be drained."""
    return claim.metadata.deletion_timestamp is None and (
        _annotated_time(claim, MAINTENANCE) is not None or _is_at_risk(claim, now)
    )


def has_maintenance(claims: Iterable[NodeClaim]) -> bool:
    """Whether the maintenance of any of these NodeClaims is announced, so that EC2 is to be asked for it."""
    return any(_annotated_time(c, MAINTENANCE) is not None for c in claims if c.metadata.deletion_timestamp is None)


def plan_drains(snapshot: Snapshot, *, scheduled: Mapping[str, datetime], now: datetime) -> EarlyDrainPlan:
    """The nodes to drain now and those to cordon, the most urgent first.

    ``scheduled`` is when EC2's scheduled events start, by instance id; empty if EC2 can't be asked.
    """
    planner = _Planner(snapshot, now, scheduled)
    for claim in sorted(snapshot.node_claims, key=lambda c: _urgency(c, planner.confirmed_start(c), now)):
        if is_marked(claim, now=now):
            planner.add(claim)
    return EarlyDrainPlan(drains=tuple(planner.drains), cordon=tuple(planner.cordon))


class _Planner(MutableStruct, dict=True):
    """Adds NodeClaims to the plan while the limits of their NodePools allow it."""

    snapshot: Snapshot
    now: datetime
    scheduled: Mapping[str, datetime]
    drains: list[EarlyDrain] = []
    cordon: list[Node] = []

    def __post_init__(self) -> None:
        snapshot, now = self.snapshot, self.now
        self._nodes = {n.spec.provider_id: n for n in snapshot.nodes if n.spec.provider_id}
        self._pods_by_node: dict[str, list[Pod]] = {}
        for pod in snapshot.pods:
            self._pods_by_node.setdefault(pod.spec.node_name, []).append(pod)
        self._policies = {p.name: rebalance_policy(p) for p in snapshot.node_pools}
        self._disruptions_allowed = {
            p.name: allowed_by_budgets(p, snapshot, reason=_DISRUPTION_REASON, now=now) for p in snapshot.node_pools
        }
        self._share_allowed = _share_allowed(snapshot, now)
        self._hour = HourlyUse(snapshot.last_hour, snapshot.node_pools, snapshot.node_claims, now=now)
        self._paused = paused_pools(snapshot.node_pools, snapshot.pause, now=now)

    def add(self, claim: NodeClaim) -> None:
        node = self._nodes.get(claim.status.provider_id)
        node_name = node.metadata.name if node is not None else ""
        pool = claim.metadata.labels.get(names.NODEPOOL, "")
        start = self.confirmed_start(claim)
        announced = _annotated_time(claim, MAINTENANCE) is not None
        at_risk = _is_at_risk(claim, self.now)
        if start is not None and start - self.now <= IMMINENT:
            # Maintenance that has started has no known end, so there is no deadline: pods' budgets hold.
            deadline = start if start > self.now else None
            self.drains.append(
                EarlyDrain(claim=claim, node=node_name, deadline=deadline, forced=True, at_risk=at_risk, confirmed=True)
            )
            self._disruptions_allowed[pool] = self._disruptions_allowed.get(pool, 0) - 1
        elif pool in self._paused or claim.metadata.labels.get(names.ZONE) in self.snapshot.shifted_zones:
            return
        elif (announced or self._policy_replaces(pool, node)) and self._may_disrupt(pool, node, start):
            self._disruptions_allowed[pool] -= 1
            self._hour.count_removal(pool)
            if start is None:
                self._share_allowed[pool] -= 1
            self.drains.append(
                EarlyDrain(claim=claim, node=node_name, deadline=start, at_risk=at_risk, confirmed=start is not None)
            )

    def confirmed_start(self, claim: NodeClaim) -> datetime | None:
        """When the announced maintenance starts, as EC2 says; None if it lists none for the instance."""
        if _annotated_time(claim, MAINTENANCE) is None:
            return None
        return self.scheduled.get(instance_id(claim.status.provider_id))

    def _policy_replaces(self, pool: str, node: Node | None) -> bool:
        """Whether the NodePool's policy replaces a node at risk; a node that it cordons is added to ``cordon``."""
        policy = self._policies.get(pool, RebalancePolicy.IGNORE)
        if policy is RebalancePolicy.CORDON and node is not None and not node.spec.unschedulable:
            self.cordon.append(node)
        return policy is RebalancePolicy.REPLACE

    def _may_disrupt(self, pool: str, node: Node | None, maintenance_start: datetime | None) -> bool:
        """Whether the limits of the NodePool and the do-not-disrupt annotations allow one more drain."""
        allowed = min(self._disruptions_allowed.get(pool, 0), self._hour.removals_left(pool))
        if allowed < 1 or self._is_protected(node):
            return False
        return maintenance_start is not None or self._share_allowed.get(pool, 0) >= 1

    def _is_protected(self, node: Node | None) -> bool:
        """Whether the node or one of its pods has the do-not-disrupt annotation."""
        if node is None:
            return False
        since = node.metadata.creation_timestamp
        if is_protected(node.metadata.annotations, since=since, now=self.now):
            return True
        return any(
            is_protected(p.metadata.annotations, since=p.metadata.creation_timestamp, now=self.now)
            for p in self._pods_by_node.get(node.metadata.name, ())
            if not is_terminal(p)
        )


def _share_allowed(snapshot: Snapshot, now: datetime) -> dict[str, int]:
    """By NodePool, how many more nodes may be drained that EC2 doesn't confirm; announced drains are in progress."""

    def is_announced(claim: NodeClaim) -> bool:
        return _is_at_risk(claim, now) or _annotated_time(claim, MAINTENANCE) is not None

    return share_allowed(snapshot.node_claims, counts=is_announced)


def share_allowed(claims: Iterable[NodeClaim], *, counts: Callable[[NodeClaim], bool]) -> dict[str, int]:
    """By NodePool, how many more nodes may be drained because of messages alone.

    A tenth, at least one, less those in progress: deleted NodeClaims that ``counts`` says are, and those that aren't
    initialized yet, so a wave stops while replacements don't start.
    """
    total: dict[str, int] = {}
    in_progress: dict[str, int] = {}
    for claim in claims:
        pool = claim.metadata.labels.get(names.NODEPOOL, "")
        total[pool] = total.get(pool, 0) + 1
        deleting = claim.metadata.deletion_timestamp is not None
        starting = not deleting and not is_true(claim.status.conditions, nodeclaim.INITIALIZED)
        if starting or (deleting and counts(claim)):
            in_progress[pool] = in_progress.get(pool, 0) + 1
    return {pool: max(1, count // _POOL_FRACTION) - in_progress.get(pool, 0) for pool, count in total.items()}


def _urgency(claim: NodeClaim, confirmed: datetime | None, now: datetime) -> tuple[bool, datetime, str]:
    announced = _annotated_time(claim, MAINTENANCE)
    time = confirmed or _annotated_time(claim, AT_RISK) or announced or now
    return announced is not None and confirmed is None, time, claim.name


def _is_at_risk(claim: NodeClaim, now: datetime) -> bool:
    since = _annotated_time(claim, AT_RISK)
    return since is not None and now - since < RECOMMENDATION_VALIDITY


def _annotated_time(claim: NodeClaim, annotation: str) -> datetime | None:
    return parse_timestamp(claim.metadata.annotations.get(annotation, ""))
