"""Which machines are moved before they have to go: those at risk, and those with maintenance ahead.

What EC2 said stands on the claims, so a wave is worked off over minutes and outlives any function. At most a tenth of a
pool's nodes, and what its disruption budgets allow, are on their way at a time; maintenance that is near goes first and
waits for no budget. Source of the rates: ours; Karpenter does nothing on a rebalance recommendation and drains at once
on scheduled changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import is_true
from shared.api.pods import is_protected, is_terminal
from shared.disruption.budgets import allowed_disruptions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.kubernetes import Node, Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool
    from shared.snapshot import Snapshot

ON_REBALANCE = "tenon.sh/on-rebalance"
"""Annotation on a NodePool: what a rebalance recommendation does, :class:`OnRebalance`."""
AT_RISK = "tenon.sh/rebalance-recommended"
"""Annotation on a NodeClaim: since when EC2 recommends to replace its machine (RFC 3339)."""
MAINTENANCE = "tenon.sh/maintenance-starts"
"""Annotation on a NodeClaim: when its machine's maintenance starts (RFC 3339)."""

RISK_STANDS = timedelta(minutes=20)
"""How long a recommendation counts: EC2 mostly takes the machine within that time, or keeps it."""
NEAR = timedelta(hours=1)
"""Maintenance that starts within that time waits for no budget."""
_SHARE = 10
_REASON = "Drifted"
"""A machine that will be maintained is no longer as it should be: the budgets for that hold."""


class OnRebalance(Enum):
    """What a pool wants done when EC2 recommends to replace a machine."""

    IGNORE = "ignore"
    CORDON = "cordon"
    """No new pods come; those that are there stay."""
    REPLACE = "replace"
    """Its pods move, once there is a place for each of them without the offering that is at risk."""


@dataclass(frozen=True, kw_only=True)
class Move:
    """A machine to move, with its node's name ("" before it has joined). ``by``: when it must be empty, if ever.

    ``must`` says that it goes even if nobody found a place for its pods yet.
    """

    claim: NodeClaim
    node: str
    by: datetime | None = None
    must: bool = False
    at_risk: bool = False


@dataclass(frozen=True, kw_only=True)
class Moves:
    """``go`` are to be moved now, ``cordon`` are nodes that get no new pods."""

    go: tuple[Move, ...] = ()
    cordon: tuple[Node, ...] = ()


def on_rebalance(pool: NodePool) -> OnRebalance:
    """The pool's choice; one that can't be read, or none, is to replace where there is something better."""
    try:
        return OnRebalance(pool.metadata.annotations.get(ON_REBALANCE, OnRebalance.REPLACE.value))
    except ValueError:
        return OnRebalance.REPLACE


def is_marked(claim: NodeClaim, *, now: datetime) -> bool:
    """Whether something still stands on the claim that may move it."""
    return claim.metadata.deletion_timestamp is None and (
        _moment(claim, MAINTENANCE) is not None or _is_at_risk(claim, now)
    )


def decide(snapshot: Snapshot, *, now: datetime) -> Moves:
    """What to move now, and what to cordon."""
    nodes = {n.spec.provider_id: n for n in snapshot.nodes if n.spec.provider_id}
    pods: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        pods.setdefault(pod.spec.node_name, []).append(pod)
    pools = {p.name: p for p in snapshot.node_pools}
    slots = {p.name: allowed_disruptions(p, snapshot, reason=_REASON, now=now) for p in snapshot.node_pools}
    tenths = _tenths(snapshot, now)
    go: list[Move] = []
    cordon: list[Node] = []
    for claim in sorted(snapshot.node_claims, key=lambda c: _urgency(c, now)):
        if not is_marked(claim, now=now):
            continue
        node = nodes.get(claim.status.provider_id)
        name = node.metadata.name if node is not None else ""
        pool = claim.metadata.labels.get(names.NODEPOOL, "")
        start = _moment(claim, MAINTENANCE)
        at_risk = _is_at_risk(claim, now)
        if start is not None and start - now <= NEAR:
            # One that has begun, or begins unsaid, has no end to drain towards: budgets of pods hold it.
            by = start if start > now else None
            go.append(Move(claim=claim, node=name, by=by, must=True, at_risk=at_risk))
            slots[pool] = slots.get(pool, 0) - 1
            continue
        choice = on_rebalance(pools[pool]) if pool in pools else OnRebalance.IGNORE
        if start is None and choice is OnRebalance.CORDON and node is not None and not node.spec.unschedulable:
            cordon.append(node)
        wanted = start is not None or choice is OnRebalance.REPLACE
        if not wanted or slots.get(pool, 0) < 1 or _is_kept(node, pods.get(name, ()), now):
            continue
        if start is None:
            if tenths.get(pool, 0) < 1:
                continue
            tenths[pool] -= 1
        slots[pool] -= 1
        go.append(Move(claim=claim, node=name, by=start, at_risk=at_risk))
    return Moves(go=tuple(go), cordon=tuple(cordon))


def _tenths(snapshot: Snapshot, now: datetime) -> dict[str, int]:
    """How many more machines at risk each pool may replace: a tenth of its nodes, one at least, less those on the way.

    A machine that is asked for and not up yet is on the way too, so that a wave stops where replacements don't come.
    """
    total: dict[str, int] = {}
    moving: dict[str, int] = {}
    for claim in snapshot.node_claims:
        pool = claim.metadata.labels.get(names.NODEPOOL, "")
        total[pool] = total.get(pool, 0) + 1
        leaving = claim.metadata.deletion_timestamp is not None
        coming = not leaving and not is_true(claim.status.conditions, nodeclaim.INITIALIZED)
        if coming or (leaving and _is_at_risk(claim, now)):
            moving[pool] = moving.get(pool, 0) + 1
    return {pool: max(1, count // _SHARE) - moving.get(pool, 0) for pool, count in total.items()}


def _is_kept(node: Node | None, pods: Iterable[Pod], now: datetime) -> bool:
    """Whether the user asked to leave the node, or a pod there, alone."""
    if node is None:
        return False
    since = node.metadata.creation_timestamp
    if is_protected(node.metadata.annotations, since=since, now=now):
        return True
    return any(
        is_protected(p.metadata.annotations, since=p.metadata.creation_timestamp, now=now)
        for p in pods
        if not is_terminal(p)
    )


def _urgency(claim: NodeClaim, now: datetime) -> tuple[datetime, str]:
    start = _moment(claim, MAINTENANCE) or _moment(claim, AT_RISK) or now
    return start, claim.name


def _is_at_risk(claim: NodeClaim, now: datetime) -> bool:
    since = _moment(claim, AT_RISK)
    return since is not None and now - since < RISK_STANDS


def _moment(claim: NodeClaim, annotation: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(claim.metadata.annotations[annotation])
    except (KeyError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None
