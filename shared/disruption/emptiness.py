"""Nodes that run nothing but daemons, for as long as their pool's consolidateAfter says.

Since when a node has been empty is kept on its claim as the condition ``Empty``, so that any function, warm or new,
knows it, and a hint that comes twice doesn't start the time anew. A node that pending pods are about to use isn't
empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.duration import parse_duration
from shared.api.meta import condition, is_true, with_condition
from shared.api.pods import is_daemon, is_mirror, is_protected, is_terminal
from shared.disruption import budgets
from shared.disruption.command import EMPTY, Command, Refused, Removal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from shared.api.kubernetes import Node, Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool
    from shared.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class Observation:
    """A claim whose ``Empty`` condition has to change."""

    claim: NodeClaim
    is_empty: bool


def holders(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """The pods that hold a node: not finished, not a daemon's, not the node's own. One that is going still holds it."""
    return tuple(p for p in pods if not (is_terminal(p) or is_daemon(p) or is_mirror(p)))


def occupants(snapshot: Snapshot) -> Mapping[str, tuple[Pod, ...]]:
    """Node name to the pods that hold it, for nodes that any pod holds."""
    held: dict[str, list[Pod]] = {}
    for pod in holders(p for p in snapshot.pods if p.spec.node_name):
        held.setdefault(pod.spec.node_name, []).append(pod)
    return {name: tuple(pods) for name, pods in held.items()}


def observe(snapshot: Snapshot, *, awaited: Collection[str]) -> tuple[Observation, ...]:
    """Which claims' ``Empty`` condition has to change; ``awaited`` names nodes and claims that pending pods get."""
    held = occupants(snapshot)
    changed = []
    for claim, node in _settled(snapshot):
        is_empty = node.metadata.name not in held and not {node.metadata.name, claim.name} & set(awaited)
        before = condition(claim.status.conditions, nodeclaim.EMPTY)
        if is_empty != (before is not None and before.status == "True"):
            changed.append(Observation(claim=claim, is_empty=is_empty))
    return tuple(changed)


def noted(claim: NodeClaim, *, is_empty: bool, now: datetime) -> NodeClaim:
    """The claim with its ``Empty`` condition set, and the time of its last pod event where Karpenter looks for it."""
    conditions = with_condition(
        claim.status.conditions,
        nodeclaim.EMPTY,
        status=is_empty,
        reason="NoPods" if is_empty else "HasPods",
        now=now,
    )
    return replace(claim, status=replace(claim.status, conditions=conditions, last_pod_event_time=now))


def decide(snapshot: Snapshot, *, awaited: Collection[str], now: datetime) -> Command:
    """Which empty claims go now, which may not, and when the next one's time is up.

    The snapshot's ``Empty`` conditions are those that :func:`observe` has left there.
    """
    held = occupants(snapshot)
    pools = {p.name: p for p in snapshot.node_pools}
    room = {name: budgets.allowed(pool, snapshot, reason=EMPTY, now=now) for name, pool in pools.items()}
    removals: list[Removal] = []
    refused: list[Refused] = []
    waits: list[datetime] = []
    for claim, node in _settled(snapshot):
        name = node.metadata.name
        if name in held or {name, claim.name} & set(awaited):
            continue
        pool = pools.get(node.metadata.labels.get(names.NODEPOOL, ""))
        since = condition(claim.status.conditions, nodeclaim.EMPTY)
        if pool is None or since is None or since.status != "True" or since.last_transition_time is None:
            continue
        after = parse_duration(pool.spec.disruption.consolidate_after)
        if after is None:
            continue
        up = since.last_transition_time + after
        if up > now:
            waits.append(up)
            continue
        obstacle = _obstacle(node, claim, pool, room, now=now)
        if obstacle:
            refused.append(Refused(claim=claim.name, node=name, reason=EMPTY, message=obstacle))
            continue
        room[pool.name] -= 1
        message = f"empty for {(now - since.last_transition_time).total_seconds():.0f} s (consolidateAfter "
        message += f"{pool.spec.disruption.consolidate_after})"
        removals.append(Removal(claim=claim.name, node=name, reason=EMPTY, message=message))
    return Command(removals=tuple(removals), refused=tuple(refused), look_again=min(waits, default=None))


def still_valid(pods: Iterable[Pod]) -> bool:
    """Whether a node is still empty, by its pods as they are right before it goes."""
    return not holders(pods)


def _obstacle(node: Node, claim: NodeClaim, pool: NodePool, room: Mapping[str, int], *, now: datetime) -> str:
    """What stands in the way of an empty node's removal, in words; empty when nothing does."""
    if any(is_protected(o.metadata.annotations, since=o.metadata.creation_timestamp, now=now) for o in (node, claim)):
        return f"annotation {names.DO_NOT_DISRUPT} is set"
    if room[pool.name] <= 0:
        return f"the disruption budgets of NodePool {pool.name} allow no more Empty nodes now"
    return ""


def _settled(snapshot: Snapshot) -> tuple[tuple[NodeClaim, Node], ...]:
    """Initialized claims that aren't going, each with its node, by name."""
    nodes = {n.spec.provider_id: n for n in snapshot.nodes if n.metadata.deletion_timestamp is None}
    return tuple(
        (claim, nodes[claim.status.provider_id])
        for claim in sorted(snapshot.node_claims, key=lambda c: c.name)
        if claim.metadata.deletion_timestamp is None
        and claim.status.provider_id in nodes
        and is_true(claim.status.conditions, nodeclaim.INITIALIZED)
    )
