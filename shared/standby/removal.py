"""Which standby nodes are removed: those that nothing asks for any more, and drifted and expired ones.

No pod runs on them, so budgets, PodDisruptionBudgets and do-not-disrupt don't apply. A drifted or expired one goes
while all others of its NodePool are stopped, so that at most one is missing at a time; provisioning buys another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.nodeclaim import expiration_time
from shared.api.standby import STOPPED, standby_state, wanted_standbys
from shared.base.struct import Struct
from shared.disruption import drift
from shared.disruption.candidates import Candidate
from shared.standby.held_nodes import held_by_pool

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool
    from shared.disruption.disruption_state import DisruptionState
    from shared.snapshot import Snapshot

MAX_REMOVALS = 10
"""The most standby nodes that one reconcile removes."""


class StandbyRemoval(Struct, kw_only=True):
    """A standby node to remove, and why."""

    claim: NodeClaim
    message: str


def removals(state: DisruptionState, everything: Snapshot) -> tuple[StandbyRemoval, ...]:
    """The standby nodes to remove now. ``everything`` is the state's snapshot with them.

    Those of NodePools that are invalid, or whose annotation can't be read, are left alone; a NodePool that is deleted
    takes its NodeClaims with it.
    """
    nodes = {n.spec.provider_id: n for n in everything.nodes if n.spec.provider_id}
    removed: list[StandbyRemoval] = []
    for name, claims in sorted(held_by_pool(everything).items()):
        pool = state.pools.get(name)
        if pool is not None and pool.metadata.deletion_timestamp is None:
            removed += _removals_of_pool(pool, claims, nodes, state)
    return tuple(removed[:MAX_REMOVALS])


def _removals_of_pool(
    pool: NodePool, claims: Sequence[NodeClaim], nodes: Mapping[str, Node], state: DisruptionState
) -> Iterator[StandbyRemoval]:
    wanted = wanted_standbys(pool)
    if wanted.error:
        return
    kept = sorted(claims, key=lambda c: standby_state(c) != STOPPED)[: wanted.count]
    surplus = [c for c in claims if c not in kept]
    for claim in surplus:
        yield StandbyRemoval(claim=claim, message=f"NodePool {pool.name} asks for {wanted.count} standby nodes")
    if surplus or len(kept) < wanted.count or any(standby_state(c) != STOPPED for c in kept):
        return
    for claim in kept:
        message = _outdated(claim, nodes.get(claim.status.provider_id), pool, wanted.instance_type, state)
        if message:
            yield StandbyRemoval(claim=claim, message=message)
            return


def _outdated(claim: NodeClaim, node: Node | None, pool: NodePool, instance_type: str, state: DisruptionState) -> str:
    """Why the node is replaced; empty while it may stay."""
    expires = expiration_time(claim)
    if expires is not None and expires <= state.now:
        return f"older than expireAfter {claim.spec.expire_after}"
    actual = claim.metadata.labels.get(names.INSTANCE_TYPE, "")
    if instance_type and actual != instance_type:
        return f"annotation {names.STANDBY} asks for {instance_type}, and this is {actual}"
    return drift.disruption_message(state, Candidate(claim=claim, node=node, pool=pool, pods=())) if node else ""
