"""Adoption of NodeClaims that Karpenter, or an older version of Tenon, created: finalizer and hashes.

Karpenter does the same for its own older versions (nodeclaim/hydration and the hash controllers).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shared.api import labels as names
from shared.api.hash import NODECLASS_HASH_VERSION, NODEPOOL_HASH_VERSION, hash_node_class, hash_node_pool
from shared.api.nodepool import node_class_for
from shared.cluster import resources

if TYPE_CHECKING:
    from functions.lifecycle.context import ReconcileContext
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass
    from shared.api.nodepool import NodePool
    from shared.snapshot import Snapshot


def adopt(context: ReconcileContext, snapshot: Snapshot) -> None:
    """Write the finalizer and current hashes to every NodeClaim that lacks them."""
    node_pools = {p.name: p for p in snapshot.node_pools}
    node_classes = {c.name: c for c in snapshot.node_classes}
    for claim in snapshot.node_claims:
        pool = node_pools.get(claim.metadata.labels.get(names.NODEPOOL, ""))
        node_class = node_classes.get(claim.spec.node_class_ref.name)
        change = partial(adopted, pool=pool, node_class=node_class)
        context.attempt(claim.ref, partial(context.update, resources.NODE_CLAIMS, claim, change))


def adopted(claim: NodeClaim, pool: NodePool | None, node_class: EC2NodeClass | None) -> NodeClaim:
    """The NodeClaim with the termination finalizer, and with hashes of the current hash version.

    Hashes of another version (Karpenter's, or an older one) can't be compared, so the NodeClaim gets those of the
    NodePool and node class as they are now: it does not drift by being adopted. Hashes of the current version stay.
    """
    metadata = claim.metadata
    if metadata.deletion_timestamp is not None:
        return claim
    if names.TERMINATION_FINALIZER not in metadata.finalizers:
        metadata = replace(metadata, finalizers=[*metadata.finalizers, names.TERMINATION_FINALIZER])
    hashes: dict[str, str] = {}
    if pool is not None and metadata.annotations.get(names.NODEPOOL_HASH_VERSION) != NODEPOOL_HASH_VERSION:
        hashes |= {names.NODEPOOL_HASH: hash_node_pool(pool), names.NODEPOOL_HASH_VERSION: NODEPOOL_HASH_VERSION}
    if node_class is not None and metadata.annotations.get(names.NODECLASS_HASH_VERSION) != NODECLASS_HASH_VERSION:
        effective_class = node_class if pool is None else node_class_for(pool, node_class)
        hashes |= {
            names.NODECLASS_HASH: hash_node_class(effective_class),
            names.NODECLASS_HASH_VERSION: NODECLASS_HASH_VERSION,
        }
    if hashes:
        metadata = replace(metadata, annotations={**metadata.annotations, **hashes})
    return claim if metadata is claim.metadata else replace(claim, metadata=metadata)
