"""Nodes of static pools (``replicas``): what is too many goes, what is too old or out of date is replaced by its like.

Their number doesn't follow pods, so they are neither empty nor underutilized. A pool that is scaled down gives up what
is cheapest to lose first: what isn't up yet, then what runs least. Everything else goes one after the other, so that
the pool never lacks more than one; what replaces it must fit within the pool's limits beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.disruption import candidates, disruption_cost, drift, expiration, graceful_replacement
from shared.disruption.command import SURPLUS, BlockedCandidate, Blocker, Command, MethodResult, Removal
from shared.disruption.disruption_queue import is_queued, is_replaced
from shared.scheduling.static_pools import plan_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool
    from shared.disruption.budgets import BudgetTracker
    from shared.disruption.candidates import Candidate
    from shared.disruption.cluster_state import ClusterState
    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.decision import PlannedNodeClaim
    from shared.snapshot import Snapshot

REASON = SURPLUS


def active_claims(pool: NodePool, snapshot: Snapshot) -> tuple[NodeClaim, ...]:
    """The pool's claims that are there to stay: neither deleted nor replaced by another that is there."""
    there = {c.name for c in snapshot.node_claims}
    return tuple(
        c
        for c in snapshot.node_claims
        if c.metadata.labels.get(names.NODEPOOL) == pool.name
        and c.metadata.deletion_timestamp is None
        and not is_replaced(c, there)
    )


def missing_replicas(
    snapshot: Snapshot, instance_types: Mapping[str, tuple[InstanceType, ...]], not_ready: Mapping[str, str]
) -> tuple[tuple[PlannedNodeClaim, ...], Mapping[str, str]]:
    """The machines that static pools lack, and by pool why it can't have all of them."""
    found: list[PlannedNodeClaim] = []
    lacks: dict[str, str] = {}
    for pool in _pools(snapshot):
        wanted = (pool.spec.replicas or 0) - len(active_claims(pool, snapshot))
        planned, lack = plan_nodes(pool, wanted, snapshot, instance_types, not_ready)
        found += planned
        if lack:
            lacks[pool.name] = f"{wanted - len(planned)} of {pool.spec.replicas} replicas can't be had: {lack}"
    return tuple(found), lacks


def surplus_claims(view: ClusterState) -> tuple[NodeClaim, ...]:
    """The claims that static pools have beyond their replicas, the cheapest to lose first in each."""
    moving = {
        c.claim.name: sum(disruption_cost.eviction_cost(p) for p in c.pods) for c in candidates.static_candidates(view)
    }
    found: list[NodeClaim] = []
    for pool in _pools(view.snapshot):
        claims = active_claims(pool, view.snapshot)
        order = sorted(
            claims, key=lambda c: (c.name in moving, moving.get(c.name, 0.0), -(view.price(c) or 0.0), c.name)
        )
        extra = max(0, len(claims) - (pool.spec.replicas or 0))
        found += [c for c in order if not is_queued(c)][:extra]
    return tuple(found)


def find_candidates(view: ClusterState) -> tuple[Candidate, ...]:
    """The nodes of static pools that are too many, too old or out of date, by claim."""
    extra = {c.name for c in surplus_claims(view)}
    return tuple(c for c in candidates.static_candidates(view) if c.claim.name in extra or _why(view, c)[1])


def compute(view: ClusterState, slots: BudgetTracker, _should_stop: Callable[[], bool] = bool) -> MethodResult:
    """What is too many goes within budgets; of what must be replaced one a pool, once nothing is under way there."""
    extra = surplus_claims(view)
    starting = tuple(_dropped(c) for c in extra if not c.status.node_name)
    up = {c.claim.name: c for c in candidates.static_candidates(view)}
    wanted = [(up[c.name], "its pool has more nodes than replicas") for c in extra if c.name in up]
    down = graceful_replacement.compute(view, slots, wanted, reason=SURPLUS)
    actions = [*starting, *down.commands]
    refused = list(down.blocked)
    busy = {c.metadata.labels.get(names.NODEPOOL) for c in (*extra, *view.snapshot.node_claims) if is_queued(c)}
    busy |= {c.metadata.labels.get(names.NODEPOOL) for c in extra}
    for pool in _pools(view.snapshot):
        if pool.name not in busy:
            action, kept = _replaced(view, slots, pool, [c for c in up.values() if c.pool.name == pool.name])
            actions += [action] if action is not None else []
            refused += kept
    return MethodResult(commands=tuple(actions), blocked=tuple(refused))


def validate(action: Command, view: ClusterState, _slots: BudgetTracker) -> str:
    """Why it can't go after all; empty when it can."""
    return "" if action.forced else graceful_replacement.validate(action, view)


def _pools(snapshot: Snapshot) -> Iterable[NodePool]:
    return (p for p in snapshot.node_pools if p.spec.replicas is not None and p.metadata.deletion_timestamp is None)


def _why(view: ClusterState, candidate: Candidate) -> tuple[str, str]:
    """The reason for which the node must be replaced, and why, in words; empty when it need not."""
    for method in (expiration, drift):
        if said := method.disruption_message(view, candidate):
            return method.REASON, said
    return "", ""


def _dropped(claim: NodeClaim) -> Command:
    """A machine that has no node yet: nothing runs there, so nothing is waited for."""
    message = "its pool has more nodes than replicas, and it has not become one yet"
    return Command(removals=(Removal(claim=claim.name, node=claim.name, reason=SURPLUS, message=message),), forced=True)


def _replaced(
    view: ClusterState, slots: BudgetTracker, pool: NodePool, nodes: Iterable[Candidate]
) -> tuple[Command | None, list[BlockedCandidate]]:
    """The first of the pool's nodes that must and may be replaced, by a machine of its like; why not the others."""
    refused: list[BlockedCandidate] = []
    for candidate in sorted(nodes, key=lambda c: c.claim.metadata.creation_timestamp or view.now):
        reason, why = _why(view, candidate)
        if not reason:
            continue
        obstacle = candidates.disruption_blocker(view, candidate) or slots.blocker(pool.name, reason)
        if obstacle is None:
            claims, lack = plan_nodes(pool, 1, view.snapshot, view.instance_types, view.not_ready)
            if claims:
                slots.consume(pool.name)
                removal = Removal(
                    claim=candidate.claim.name,
                    node=candidate.name,
                    reason=reason,
                    message=why,
                    pods=tuple(p.key for p in candidate.pods),
                )
                savings = (view.price(candidate.claim) or 0.0) - claims[0].cheapest.price
                return Command(removals=(removal,), replacements=claims, savings=savings), refused
            obstacle = Blocker(message=f"it can't be replaced: {lack}", by=f"NodePool {pool.name}")
        claim, node = candidate.claim.name, candidate.name
        refused.append(
            BlockedCandidate(claim=claim, node=node, reason=reason, blocker=obstacle, pods=len(candidate.pods))
        )
    return None, refused
