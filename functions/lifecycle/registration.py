"""How a claim comes to its node: registered when the node appears, initialized when pods can run on it.

Pure: each function takes an object and gives the object as it should be, so that writing is a difference, doing it
twice changes nothing more, and a conflict is answered by computing anew. Rules: Karpenter's registration and
initialization (reference: karpenter.md, section 6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.hash import NODECLASS_HASH_VERSION, NODEPOOL_HASH_VERSION, hash_node_class, hash_node_pool
from shared.api.meta import OwnerReference, is_true, with_condition
from shared.api.nodepool import node_class_for
from shared.api.quantity import parse_resources
from shared.api.taints import same_taint

if TYPE_CHECKING:
    from datetime import datetime

    from shared.api.kubernetes import Node, Taint
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass
    from shared.api.nodepool import NodePool

EPHEMERAL_TAINTS = frozenset(
    {
        names.NOT_READY_TAINT,
        "node.kubernetes.io/unreachable",
        "node.cloudprovider.kubernetes.io/uninitialized",
    }
)
"""Taints that a starting node carries by itself and loses by itself (with ``*.csi.*/agent-not-ready`` ones)."""
_AGENT_NOT_READY = "agent-not-ready"
_OF_THE_CLAIM_ALONE = frozenset({names.TERMINATION_TIMESTAMP, names.PLANNED_PODS})
"""Annotations that a node doesn't get: all that watch nodes would be sent the names of its pods."""


def node_after(node: Node, claim: NodeClaim) -> Node:
    """The node with what its claim brings (labels, annotations, taints, finalizer, owner) and its progress.

    Labels, annotations and startup taints are brought once: afterwards a user, or whoever the taint waits for, may have
    changed them, and is right.
    """
    metadata = node.metadata
    if not _is_registered(node):
        annotations = {k: v for k, v in claim.metadata.annotations.items() if k not in _OF_THE_CLAIM_ALONE}
        metadata = replace(
            metadata,
            labels={**metadata.labels, **claim.metadata.labels, names.REGISTERED: "true"},
            annotations={**metadata.annotations, **annotations},
        )
    if names.TERMINATION_FINALIZER not in metadata.finalizers and metadata.deletion_timestamp is None:
        metadata = replace(metadata, finalizers=[*metadata.finalizers, names.TERMINATION_FINALIZER])
    if not any(o.uid == claim.metadata.uid for o in metadata.owner_references):
        owner = OwnerReference(
            api_version=claim.api_version,
            kind=claim.kind,
            name=claim.name,
            uid=claim.metadata.uid,
            block_owner_deletion=True,
        )
        metadata = replace(metadata, owner_references=[*metadata.owner_references, owner])
    after = replace(node, metadata=metadata, spec=replace(node.spec, taints=_registered_taints(node, claim)))
    if uninitialized_because(after, claim) is None and metadata.labels.get(names.INITIALIZED) != "true":
        metadata = replace(metadata, labels={**metadata.labels, names.INITIALIZED: "true"})
        after = replace(after, metadata=metadata)
    return after


def claim_after(claim: NodeClaim, node: Node, *, now: datetime) -> NodeClaim:
    """The claim with what its node shows: its name, its real size, Registered, Initialized and Ready.

    A node shows too that the claim was launched, should somebody have taken that off: nothing is to be launched again.
    """
    status = claim.status
    conditions = status.conditions
    if not is_true(conditions, nodeclaim.LAUNCHED):
        conditions = with_condition(conditions, nodeclaim.LAUNCHED, status=True, reason="Launched", now=now)
    conditions = with_condition(conditions, nodeclaim.REGISTERED, status=True, reason="Registered", now=now)
    waiting = uninitialized_because(node, claim)
    if waiting is None:
        conditions = with_condition(conditions, nodeclaim.INITIALIZED, status=True, reason="Initialized", now=now)
        status = replace(status, capacity=node.status.capacity, allocatable=node.status.allocatable)
    elif not is_true(conditions, nodeclaim.INITIALIZED):
        reason, message = waiting
        conditions = with_condition(
            conditions, nodeclaim.INITIALIZED, status=None, reason=reason, message=message, now=now
        )
    status = replace(status, node_name=node.metadata.name, conditions=nodeclaim.with_ready(conditions, now=now))
    return replace(claim, status=status)


def adopted(claim: NodeClaim, pool: NodePool | None, node_class: EC2NodeClass | None) -> NodeClaim:
    """The claim with our finalizer, and with fingerprints of our version of what it was made from.

    A fingerprint of another version (Karpenter's, or an older one's) says nothing here, so the pool and class as they
    are now count as what the claim was made from: it is never drift. One of our version is left as it is.
    """
    metadata = claim.metadata
    if metadata.deletion_timestamp is not None:
        return claim
    if names.TERMINATION_FINALIZER not in metadata.finalizers:
        metadata = replace(metadata, finalizers=[*metadata.finalizers, names.TERMINATION_FINALIZER])
    stamps: dict[str, str] = {}
    if pool is not None and metadata.annotations.get(names.NODEPOOL_HASH_VERSION) != NODEPOOL_HASH_VERSION:
        stamps |= {names.NODEPOOL_HASH: hash_node_pool(pool), names.NODEPOOL_HASH_VERSION: NODEPOOL_HASH_VERSION}
    if node_class is not None and metadata.annotations.get(names.NODECLASS_HASH_VERSION) != NODECLASS_HASH_VERSION:
        made_with = node_class if pool is None else node_class_for(pool, node_class)
        stamps |= {
            names.NODECLASS_HASH: hash_node_class(made_with),
            names.NODECLASS_HASH_VERSION: NODECLASS_HASH_VERSION,
        }
    if stamps:
        metadata = replace(metadata, annotations={**metadata.annotations, **stamps})
    return claim if metadata is claim.metadata else replace(claim, metadata=metadata)


def uninitialized_because(node: Node, claim: NodeClaim) -> tuple[str, str] | None:
    """Reason and message of what the node still lacks, or None when pods can run on it."""
    if not is_true(node.status.conditions, "Ready"):
        return "NodeNotReady", f"node {node.metadata.name} is not Ready yet"
    for taint in node.spec.taints:
        if any(same_taint(taint, startup) for startup in claim.spec.startup_taints):
            return "StartupTaintsExist", f"startup taint {taint.key}:{taint.effect} is still on the node"
        if taint.key in EPHEMERAL_TAINTS or taint.key.endswith(_AGENT_NOT_READY):
            return "KnownEphemeralTaintsExist", f"taint {taint.key}:{taint.effect} is still on the node"
    allocatable = parse_resources(node.status.allocatable)
    for name, amount in parse_resources(claim.spec.resources.requests).items():
        if amount > 0 and allocatable.get(name, 0) == 0:
            return "ResourceNotRegistered", f"the node has no {name} yet"
    return None


def _is_registered(node: Node) -> bool:
    return node.metadata.labels.get(names.REGISTERED) == "true"


def _registered_taints(node: Node, claim: NodeClaim) -> list[Taint]:
    """The node's taints without ``unregistered``; on first registration, with every taint of the claim."""
    kept = [t for t in node.spec.taints if t.key != names.UNREGISTERED_TAINT]
    if _is_registered(node):
        return kept
    brought = (*claim.spec.taints, *claim.spec.startup_taints)
    return kept + [t for t in brought if not any(same_taint(t, k) for k in kept)]
