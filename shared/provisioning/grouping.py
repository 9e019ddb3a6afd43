"""A decision's claims as they are asked for: alike where that saves calls, and never past a pool's limits by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.quantity import add, largest, parse_resources
from shared.launch.merging import fewer_launches, past_limits
from shared.lifecycle import claims as claim_making

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.nodeclaim import NodeClaim
    from shared.api.quantity import Resources
    from shared.launch.supply import Supply
    from shared.scheduling.decision import Decision, PlannedClaim
    from shared.snapshot import Snapshot


def grouped(decision: Decision, snapshot: Snapshot, offers: Supply) -> tuple[PlannedClaim, ...]:
    """The decision's claims in their order, in few launches; those of pools that are near their limits as planned."""
    held: dict[str, Resources] = {}
    capacity = {pool: {t.name: t.capacity for t in types} for pool, types in offers.instance_types.items()}
    for claim in snapshot.node_claims:
        pool = claim.metadata.labels.get(names.NODEPOOL, "")
        held[pool] = add(held.get(pool, {}), _size(claim, capacity.get(pool, {})))
    merged = fewer_launches(decision.claims)
    limited = past_limits(merged, snapshot.node_pools, held=held, instance_types=offers.instance_types)
    return fewer_launches(decision.claims, limited=limited) if limited else merged


def _size(claim: NodeClaim, capacity: Mapping[str, Resources]) -> Resources:
    """What a claim's machine has; while it has none, what the largest that it may get has."""
    if claim.status.capacity:
        return parse_resources(claim.status.capacity)
    return largest(*(capacity[name] for name in claim_making.instance_types(claim) if name in capacity))
