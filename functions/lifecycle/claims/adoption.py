"""Hashes on NodePools, EC2NodeClasses and NodeClaims, as Karpenter's hash controllers write them.

With them Karpenter and Tenon hand a cluster over to each other without drift: objects whose hash is of another version
get the current one. NodeClaims that Karpenter, or an older version of Tenon, created are adopted: they also get the
termination finalizer.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclass, nodepool
from shared.api.hash import NODECLASS_HASH_VERSION, hash_node_class, hash_node_pool, node_pool_hash_version
from shared.api.meta import annotated
from shared.api.nodepool import node_class_for
from shared.base.struct import with_fields
from shared.cluster import resources

if TYPE_CHECKING:
    from functions.lifecycle.context import ReconcileContext
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass
    from shared.api.nodepool import NodePool
    from shared.snapshot import Snapshot


def adopt(context: ReconcileContext, snapshot: Snapshot) -> None:
    """Write the finalizer and current hashes to every NodeClaim that lacks them; then those of NodePools and classes.

    NodeClaims come first: a NodePool or class of the current version says that its NodeClaims have been done.
    """
    node_pools = {p.name: p for p in snapshot.node_pools}
    node_classes = {c.name: c for c in snapshot.node_classes}
    for claim in snapshot.node_claims:
        pool = node_pools.get(claim.metadata.labels.get(names.NODEPOOL, ""))
        node_class = node_classes.get(claim.spec.node_class_ref.name)
        change = partial(adopted, pool=pool, node_class=node_class)
        context.attempt(claim.ref, partial(context.update, resources.NODE_CLAIMS, claim, change))
    for pool in snapshot.node_pools:
        if pool.kind == nodepool.KIND:
            context.attempt(pool.ref, partial(context.update, resources.NODE_POOLS, pool, hashed_pool))
    for node_class in snapshot.node_classes:
        if node_class.kind == nodeclass.KIND:
            context.attempt(node_class.ref, partial(context.update, resources.NODE_CLASSES, node_class, hashed_class))


def hashed_pool(pool: NodePool) -> NodePool:
    """The NodePool with its hash and the hash's version as annotations."""
    hashes = {names.NODEPOOL_HASH: hash_node_pool(pool), names.NODEPOOL_HASH_VERSION: node_pool_hash_version(pool)}
    return with_fields(pool, metadata=annotated(pool.metadata, hashes))


def hashed_class(node_class: EC2NodeClass) -> EC2NodeClass:
    """The EC2NodeClass with its hash and the hash's version as annotations."""
    hashes = {names.NODECLASS_HASH: hash_node_class(node_class), names.NODECLASS_HASH_VERSION: NODECLASS_HASH_VERSION}
    return with_fields(node_class, metadata=annotated(node_class.metadata, hashes))


def adopted(claim: NodeClaim, pool: NodePool | None, node_class: EC2NodeClass | None) -> NodeClaim:
    """The NodeClaim with the termination finalizer, and with hashes of the current hash version.

    Hashes of another version can't be compared, so the NodeClaim gets those of the NodePool and node class as they are
    now: it does not drift by being adopted. Hashes of the current version stay.
    """
    metadata = claim.metadata
    if metadata.deletion_timestamp is not None:
        return claim
    if names.TERMINATION_FINALIZER not in metadata.finalizers:
        metadata = with_fields(metadata, finalizers=[*metadata.finalizers, names.TERMINATION_FINALIZER])
    hashes: dict[str, str] = {}
    if pool is not None and metadata.annotations.get(names.NODEPOOL_HASH_VERSION) != node_pool_hash_version(pool):
        hashes |= {names.NODEPOOL_HASH: hash_node_pool(pool), names.NODEPOOL_HASH_VERSION: node_pool_hash_version(pool)}
    if node_class is not None and metadata.annotations.get(names.NODECLASS_HASH_VERSION) != NODECLASS_HASH_VERSION:
        effective_class = node_class if pool is None else node_class_for(pool, node_class)
        hashes |= {
            names.NODECLASS_HASH: hash_node_class(effective_class),
            names.NODECLASS_HASH_VERSION: NODECLASS_HASH_VERSION,
        }
    if hashes:
        metadata = annotated(metadata, hashes)
    return claim if metadata is claim.metadata else with_fields(claim, metadata=metadata)
