"""Removes the termination finalizer, which deletes Nodes and NodeClaims for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.cluster import resources, writes

if TYPE_CHECKING:
    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client


def finalize_node(client: Client, node: Node) -> None:
    """Delete the node and remove its finalizer."""
    writes.delete(client, resources.NODES, node)
    writes.remove_finalizer(client, resources.NODES, node, names.TERMINATION_FINALIZER)


def finalize_nodeclaim(client: Client, claim: NodeClaim, node: Node | None) -> bool:
    """Delete the NodeClaim's node, if it has one, and remove the finalizers of both.

    False where the node stays for another controller's finalizer: the NodeClaim stays as long, as under Karpenter, so
    that nothing takes its place.
    """
    if node is not None:
        finalize_node(client, node)
        if set(node.metadata.finalizers) - {names.TERMINATION_FINALIZER}:
            return False
    writes.remove_finalizer(client, resources.NODE_CLAIMS, claim, names.TERMINATION_FINALIZER)
    return True
