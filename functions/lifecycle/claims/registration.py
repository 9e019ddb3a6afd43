"""Registration of a node: what it gets from its NodeClaim when it joins the cluster, and the Registered condition.

Pure: each function takes an object and returns it as it should be, so a write is a difference, a second run changes
nothing, and after a conflict the change is computed again. Rules: Karpenter's nodeclaim/lifecycle/registration.go
(docs/facts/karpenter.md, section 6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import is_true, with_condition
from shared.api.taints import same_taint
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from datetime import datetime

    from shared.api.kubernetes import Node, Taint
    from shared.api.nodeclaim import NodeClaim

_NODECLAIM_ONLY_ANNOTATIONS = frozenset(
    {names.TERMINATION_TIMESTAMP, names.PLANNED_PODS, names.PLANNED_AT, names.STANDBY, names.NODEPOOL_GENERATION}
)
"""Annotations that are not copied to the node: every watcher of nodes would receive the names of its pods."""


def registered_node(node: Node, claim: NodeClaim) -> Node:
    """The node with its NodeClaim's labels, annotations, taints and finalizer.

    Labels, annotations and startup taints are copied once, at registration: later, users and the agents that startup
    taints wait for may change them. Unlike Karpenter's nodes, it gets no owner reference: where admission plugin
    OwnerReferencesPermissionEnforcement is on, that needs the right to delete nodes.
    """
    metadata = node.metadata
    if not _is_registered(node):
        annotations = {k: v for k, v in claim.metadata.annotations.items() if k not in _NODECLAIM_ONLY_ANNOTATIONS}
        metadata = with_fields(
            metadata,
            labels={**metadata.labels, **claim.metadata.labels, names.REGISTERED: "true"},
            annotations={**metadata.annotations, **annotations, names.NODECLAIM: claim.name},
        )
    if names.TERMINATION_FINALIZER not in metadata.finalizers and metadata.deletion_timestamp is None:
        metadata = with_fields(metadata, finalizers=[*metadata.finalizers, names.TERMINATION_FINALIZER])
    return with_fields(node, metadata=metadata, spec=with_fields(node.spec, taints=_registered_taints(node, claim)))


def registered_nodeclaim(claim: NodeClaim, node: Node, *, now: datetime) -> NodeClaim:
    """The NodeClaim with its node's name and condition Registered.

    A NodeClaim with a node was launched: the Launched condition is restored if it was removed, so that no second
    instance is launched.
    """
    conditions, generation = claim.status.conditions, claim.metadata.generation
    if not is_true(conditions, nodeclaim.LAUNCHED):
        conditions = with_condition(
            conditions, nodeclaim.LAUNCHED, status=True, reason="Launched", now=now, generation=generation
        )
    conditions = with_condition(
        conditions, nodeclaim.REGISTERED, status=True, reason="Registered", now=now, generation=generation
    )
    return with_fields(claim, status=with_fields(claim.status, node_name=node.metadata.name, conditions=conditions))


def _is_registered(node: Node) -> bool:
    return node.metadata.labels.get(names.REGISTERED) == "true"


def _registered_taints(node: Node, claim: NodeClaim) -> list[Taint]:
    """The node's taints without ``unregistered``; at registration, with every taint of the NodeClaim."""
    taints = [t for t in node.spec.taints if t.key != names.UNREGISTERED_TAINT]
    if _is_registered(node):
        return taints
    claim_taints = (*claim.spec.taints, *claim.spec.startup_taints)
    return taints + [t for t in claim_taints if not any(same_taint(t, existing) for existing in taints)]
