"""Standby nodes in decisions: hidden while they are kept, and presented where new nodes would be launched.

A node that is kept on standby takes no pods, counts against no limit and is no candidate for disruption, so decisions
are made from a snapshot without it. One that is being started is presented as a NodeClaim whose node is on its way:
its Node object is there, but not Ready and cordoned.

Pure.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.hash import is_node_pool_hash, node_pool_hash_version
from shared.api.quantity import NODES, QuantityError, add, parse_resources
from shared.api.standby import STOPPED, is_held, standby_state
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool
    from shared.api.quantity import Resources
    from shared.instance_types.instance_type import InstanceType
    from shared.snapshot import Snapshot


def without_standbys(snapshot: Snapshot) -> Snapshot:
    """The snapshot without standby nodes and their pods; of those that are being started, the NodeClaims stay."""
    return _without_nodes(snapshot, [c for c in snapshot.node_claims if standby_state(c)])


def without_stopped(snapshot: Snapshot) -> Snapshot:
    """The snapshot without the nodes that cost no more than their volumes."""
    return _without_nodes(snapshot, [c for c in snapshot.node_claims if standby_state(c) == STOPPED])


def _without_nodes(snapshot: Snapshot, claims: Collection[NodeClaim]) -> Snapshot:
    if not claims:
        return snapshot
    held = {c.name for c in claims if is_held(c)}
    provider_ids = {c.status.provider_id for c in claims if c.status.provider_id}
    nodes = {n.metadata.name for n in snapshot.nodes if n.spec.provider_id in provider_ids}
    return with_fields(
        snapshot,
        node_claims=tuple(c for c in snapshot.node_claims if c.name not in held),
        nodes=tuple(n for n in snapshot.nodes if n.metadata.name not in nodes),
        pods=tuple(p for p in snapshot.pods if not p.spec.node_name or p.spec.node_name not in nodes),
    )


def held_by_pool(snapshot: Snapshot) -> dict[str, list[NodeClaim]]:
    """By NodePool: the NodeClaims that are kept on standby and not being deleted, oldest first."""
    held: defaultdict[str, list[NodeClaim]] = defaultdict(list)
    for claim in sorted(snapshot.node_claims, key=_age_order):
        if is_held(claim) and claim.metadata.deletion_timestamp is None:
            held[claim.metadata.labels.get(names.NODEPOOL, "")].append(claim)
    return dict(held)


def startable(
    snapshot: Snapshot,
    instance_types: Mapping[str, tuple[InstanceType, ...]],
    *,
    unusable: Collection[str] = (),
) -> tuple[NodeClaim, ...]:
    """The stopped nodes that may be started now, oldest first: as many as limits allow.

    Left out are ``unusable`` ones (by NodeClaim), those whose NodePool has changed or isn't ready, and those whose
    offering had no capacity lately.
    """
    pools = {p.name: p for p in snapshot.node_pools}
    visible = without_standbys(snapshot)
    chosen: list[NodeClaim] = []
    for name, claims in sorted(held_by_pool(snapshot).items()):
        pool, types = pools.get(name), instance_types.get(name, ())
        if pool is None or pool.metadata.deletion_timestamp is not None:
            continue
        stopped = [
            c
            for c in claims
            if standby_state(c) == STOPPED
            and c.name not in unusable
            and _is_current(c, pool)
            and _is_available(c, types)
        ]
        chosen += _within_limits(stopped, parse_resources(pool.spec.limits), _of_pool(visible, name))
    of_pools = [c for c in visible.node_claims if names.NODEPOOL in c.metadata.labels]
    return tuple(_within_limits(chosen, snapshot.cluster_limits, of_pools))


def _of_pool(snapshot: Snapshot, pool: str) -> list[NodeClaim]:
    return [c for c in snapshot.node_claims if c.metadata.labels.get(names.NODEPOOL) == pool]


def _is_current(claim: NodeClaim, pool: NodePool) -> bool:
    annotations = claim.metadata.annotations
    if annotations.get(names.NODEPOOL_HASH_VERSION) != node_pool_hash_version(pool):
        return True
    return is_node_pool_hash(annotations.get(names.NODEPOOL_HASH, ""), pool)


def _is_available(claim: NodeClaim, types: Iterable[InstanceType]) -> bool:
    labels = claim.metadata.labels
    return any(
        o.available and o.zone == labels.get(names.ZONE) and o.capacity_type == labels.get(names.CAPACITY_TYPE)
        for t in types
        if t.name == labels.get(names.INSTANCE_TYPE)
        for o in t.offerings
    )


def _within_limits(
    claims: Iterable[NodeClaim], limits: Resources, counted: Collection[NodeClaim]
) -> Iterator[NodeClaim]:
    """The first of the NodeClaims, as many as limits allow in addition to those that count already."""
    if limits and any(not c.status.capacity for c in counted):
        return  # how large they will be isn't known yet
    used: Resources = add({}, *(_size(c) for c in counted))
    for claim in claims:
        after = add(used, _size(claim))
        if any(after.get(name, 0) > limit for name, limit in limits.items()):
            return
        used = after
        yield claim


def _size(claim: NodeClaim) -> Resources:
    try:
        return {**parse_resources(claim.status.capacity), NODES: 1}
    except QuantityError:
        return {NODES: 1}


def _age_order(claim: NodeClaim) -> tuple[float, str]:
    created = claim.metadata.creation_timestamp
    return (created.timestamp() if created is not None else 0.0, claim.name)
