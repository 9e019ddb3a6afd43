"""What the nodes of all NodePools have together, and what planned ones may have, for the limits over all NodePools.

Imported only in clusters that have such limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.nodepool import node_group_of
from shared.api.quantity import NODES, add, largest
from shared.base.struct import with_fields
from shared.scheduling.rules.requirements import RequirementError, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from shared.api.nodeclaim import NodeClaim
    from shared.api.quantity import Resources
    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.decision import PlannedNodeClaim
    from shared.scheduling.state.state_nodes import StateNodes
    from shared.snapshot import Snapshot


def used_by_pools(usage: Mapping[str, Resources], node_counts: Mapping[str, int]) -> Resources:
    """What the nodes of all NodePools have together, by what each NodePool's have."""
    pools = [pool for pool in node_counts if not node_group_of(pool)]
    return {
        **add({}, *(usage.get(pool, {}) for pool in pools)),
        NODES: sum(node_counts[pool] for pool in pools),
    }


def less_planned(
    limits: Resources, planned: Iterable[PlannedNodeClaim], instance_types: Mapping[str, Sequence[InstanceType]]
) -> Resources:
    """What the limits are without these planned nodes, each counted as the largest of its instance types."""
    sizes = [_largest_size(claim, instance_types) for claim in planned if not node_group_of(claim.node_pool)]
    total = add({}, *sizes)
    return {name: amount - total.get(name, 0) for name, amount in limits.items()}


def with_possible_capacity(
    state_nodes: StateNodes, snapshot: Snapshot, instance_types: Mapping[str, Sequence[InstanceType]]
) -> StateNodes:
    """The usage with NodeClaims that aren't launched yet and whose NodePool can't launch now, as large as they may be.

    Their NodePool's own limits don't need them, as it launches nothing else either.
    """
    usage = dict(state_nodes.usage)
    for claim in snapshot.node_claims:
        pool = claim.metadata.labels.get(names.NODEPOOL, "")
        if pool and not claim.status.capacity and not instance_types.get(pool):
            usage[pool] = add(usage.get(pool, {}), _possible_capacity(claim, instance_types))
    return with_fields(state_nodes, usage=usage)


def _possible_capacity(claim: NodeClaim, instance_types: Mapping[str, Sequence[InstanceType]]) -> Resources:
    """The largest that the NodeClaim may become, by what its instance types have in other NodePools."""
    try:
        listed = parse(claim.spec.requirements).get(names.INSTANCE_TYPE)
    except RequirementError:
        return {}
    known = {t.name: t.capacity for types in instance_types.values() for t in types}
    sizes = [capacity for name, capacity in known.items() if listed is None or listed.has(name)]
    return largest(*sizes) if sizes else {}


def _largest_size(claim: PlannedNodeClaim, instance_types: Mapping[str, Sequence[InstanceType]]) -> Resources:
    capacity = [t.capacity for t in instance_types.get(claim.node_pool, ()) if t.name in claim.instance_types]
    return {**(largest(*capacity) if capacity else {}), NODES: 1}
