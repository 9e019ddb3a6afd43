"""Condition WithinClusterLimits of NodePools: what the nodes of all of them have of the limits over all of them.

It is False once a limit is reached, says so with the amounts, and doesn't affect Ready. Where no NodePool has the
annotation, NodePools don't have it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shared.api.cluster_limits import describe, is_reached, used_by_claims
from shared.api.meta import condition, with_condition

if TYPE_CHECKING:
    from datetime import datetime

    from functions.lifecycle.context import ReconcileContext
    from shared.api.meta import Condition
    from shared.api.nodepool import NodePool
    from shared.api.quantity import Resources
    from shared.snapshot import Snapshot

WITHIN_CLUSTER_LIMITS = "WithinClusterLimits"


def write_conditions(context: ReconcileContext, snapshot: Snapshot) -> None:
    """Write the condition of every NodePool that has another."""
    used = used_by_claims(snapshot.node_claims)
    with_limits = partial(conditions, limits=snapshot.cluster_limits, used=used, now=context.now)
    for pool in snapshot.node_pools:
        context.attempt(pool.ref, partial(context.write_conditions, pool, with_limits))


def conditions(pool: NodePool, limits: Resources, used: Resources, *, now: datetime) -> list[Condition]:
    """The NodePool's conditions with WithinClusterLimits; without it where there are no such limits."""
    before = pool.status.conditions
    if not limits:
        kept = [c for c in before if c.type != WITHIN_CLUSTER_LIMITS]
        return kept if condition(before, WITHIN_CLUSTER_LIMITS) else before
    reached = any(is_reached(name, limits, used) for name in limits)
    return with_condition(
        before,
        WITHIN_CLUSTER_LIMITS,
        status=not reached,
        reason="LimitReached" if reached else "WithinLimits",
        message=", ".join(f"{name} {describe(name, limits, used)}" for name in sorted(limits)),
        now=now,
        generation=pool.metadata.generation,
    )
