"""Objects of other provisioners in the cluster: EKS Auto Mode's, or another provider's of Karpenter.

They have the same kinds, labels and finalizer as Tenon's. What tells them apart is the API group of their node class
(``spec.nodeClassRef.group``, eks.amazonaws.com for Auto Mode). NodePools and NodeClaims of another group are dropped
when they are read, so nothing can change them. Their nodes are kept, because pods can be scheduled to them, but without
the label and finalizer by which Tenon would take them for its own: they count like the nodes of a node group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from shared.api import labels as names
from shared.api.nodeclaim import NodeClaim
from shared.base.struct import Struct, WireStruct, with_fields
from shared.cluster import listing, resources

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from shared.api.json_types import Json
    from shared.api.kubernetes import Node
    from shared.cluster.client import Client
    from shared.cluster.listing import ObjectList

AUTO_MODE_GROUP = "eks.amazonaws.com"
_AUTO_MODE = "eks.amazonaws.com/compute-type"
_NODE_CLASS_SUFFIX = "nodeclass"
"""Karpenter labels nodes with GROUP/KIND of their node class, in lower case (NodeClassLabelKey in its core)."""


class NodeClaimList(Struct):
    """The cluster's NodeClaims without those of other groups, and the instances (providerID) of the latter."""

    own: ObjectList[NodeClaim]
    foreign_provider_ids: frozenset[str] = frozenset()


class _Ref(WireStruct):
    group: str = names.AWS_GROUP


class _ClaimSpec(WireStruct, rename="camel"):
    node_class_ref: _Ref = _Ref()


class _GroupOnly(WireStruct):
    spec: _ClaimSpec = _ClaimSpec()


def list_node_claims(client: Client, *, fields: str = "") -> NodeClaimList:
    """Every NodeClaim, by whose it is; those that the field selector selects, if there is one.

    Raises:
        NotFoundError: the cluster doesn't have the kind.
    """
    listed = listing.list_objects(
        client, resources.NODE_CLAIMS, NodeClaim, fields=fields, ignore_invalid=_is_foreign_json
    )
    own = tuple(c for c in listed.objects if not is_foreign(c))
    if len(own) == len(listed.objects):
        return NodeClaimList(listed)
    foreign_ids = frozenset(c.status.provider_id for c in listed.objects if is_foreign(c) and c.status.provider_id)
    return NodeClaimList(with_fields(listed, objects=own), foreign_ids)


def is_foreign(claim: NodeClaim) -> bool:
    """Whether the NodeClaim's node class is of another group."""
    return claim.spec.node_class_ref.group != names.AWS_GROUP


def own_node_pools(raw_objects: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The NodePools and Provisioners, as JSON, whose node class is not of another group."""
    return [raw for raw in raw_objects if _group(raw, "spec", "template", "spec", "nodeClassRef") == names.AWS_GROUP]


def foreign_pools(raw_objects: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Who runs the NodePools whose node class is of another group, by their names."""
    groups = {
        str((raw.get("metadata") or {}).get("name")): _group(raw, "spec", "template", "spec", "nodeClassRef")
        for raw in raw_objects
    }
    return {name: _provisioner(group) for name, group in groups.items() if group != names.AWS_GROUP}


def _provisioner(group: str) -> str:
    runner = "EKS Auto Mode" if group == AUTO_MODE_GROUP else "another provisioner"
    return f"its nodes are launched by {runner}, not by Tenon (nodeClassRef.group is {group})"


def unmanaged(nodes: Iterable[Node], foreign_provider_ids: Collection[str]) -> tuple[Node, ...]:
    """The nodes; those of other provisioners without NodePool's label and the termination finalizer."""
    return tuple(_without_marks(n) if is_foreign_node(n, foreign_provider_ids) else n for n in nodes)


def is_foreign_node(node: Node, foreign_provider_ids: Collection[str]) -> bool:
    """Whether the node is another provisioner's, by its NodeClaim's providerID or the label of its node class."""
    if node.spec.provider_id in foreign_provider_ids:
        return True
    labels = node.metadata.labels
    if labels.get(_AUTO_MODE) == "auto":
        return True
    return names.NODECLASS not in labels and any(
        key.endswith(_NODE_CLASS_SUFFIX) and "/" in key and not key.startswith(f"{names.AWS_GROUP}/") for key in labels
    )


def _without_marks(node: Node) -> Node:
    metadata = with_fields(
        node.metadata,
        labels={key: value for key, value in node.metadata.labels.items() if key != names.NODEPOOL},
        finalizers=[f for f in node.metadata.finalizers if f != names.TERMINATION_FINALIZER],
    )
    return with_fields(node, metadata=metadata)


def _is_foreign_json(raw: bytes) -> bool:
    """Whether a NodeClaim that can't be decoded is of another group."""
    try:
        return msgspec.json.decode(raw, type=_GroupOnly).spec.node_class_ref.group != names.AWS_GROUP
    except msgspec.MsgspecError:
        return False


def _group(raw: Json, *path: str) -> str:
    for key in path:
        raw = raw.get(key) if isinstance(raw, dict) else None
    group = raw.get("group") if isinstance(raw, dict) else None
    return group if isinstance(group, str) and group else names.AWS_GROUP
