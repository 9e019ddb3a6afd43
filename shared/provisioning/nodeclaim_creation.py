"""What pools could launch now, and the claims of planned machines: the steps that everyone who buys has in common."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.quantity import add, largest, parse_resources
from shared.launch.fleet.batching import merge_launch_groups, pools_past_limits
from shared.provisioning.nodeclaim import instance_types, nodeclaim_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.api.nodeclaim import NodeClaim
    from shared.api.quantity import Resources
    from shared.cloud_provider import ResolvedNodePools
    from shared.scheduling.decision import Decision, PlannedNodeClaim
    from shared.snapshot import Snapshot

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def new_node_claims(
    machines: Iterable[PlannedNodeClaim], snapshot: Snapshot, resolved_pools: ResolvedNodePools, *, decision: str
) -> tuple[NodeClaim, ...]:
    """The claims of planned machines, not written yet; their names follow from the decision's id."""
    pools = {p.name: p for p in snapshot.node_pools}
    return tuple(
        nodeclaim_for(
            one,
            pools[one.node_pool],
            resolved_pools.node_classes[one.node_pool],
            decision=decision,
            name=f"{one.node_pool}-{_suffix(decision, i)}",
        )
        for i, one in enumerate(machines)
    )


def _suffix(decision: str, index: int) -> str:
    """Five lower-case letters and digits, as generateName makes them, but the same for the same decision."""
    digest = hashlib.sha256(f"{decision}/{index}".encode()).digest()
    return "".join(_LETTERS[b % len(_LETTERS)] for b in digest[:5])


def batch_launches(decision: Decision, snapshot: Snapshot, offers: ResolvedNodePools) -> tuple[PlannedNodeClaim, ...]:
    """The decision's claims in their order, in few launches; those of pools that are near their limits as planned."""
    held: dict[str, Resources] = {}
    capacity = {pool: {t.name: t.capacity for t in types} for pool, types in offers.instance_types.items()}
    for claim in snapshot.node_claims:
        pool = claim.metadata.labels.get(names.NODEPOOL, "")
        held[pool] = add(held.get(pool, {}), _size(claim, capacity.get(pool, {})))
    merged = merge_launch_groups(decision.new_node_claims)
    limited = pools_past_limits(merged, snapshot.node_pools, held=held, instance_types=offers.instance_types)
    return merge_launch_groups(decision.new_node_claims, limited=limited) if limited else merged


def _size(claim: NodeClaim, capacity: Mapping[str, Resources]) -> Resources:
    """What a claim's machine has; while it has none, what the largest that it may get has."""
    if claim.status.capacity:
        return parse_resources(claim.status.capacity)
    return largest(*(capacity[name] for name in instance_types(claim) if name in capacity))
