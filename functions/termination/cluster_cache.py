"""Objects and instances that one invocation of the termination function reads: each list once, for all NodeClaims."""

from __future__ import annotations

import contextlib
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.kubernetes import Node
from shared.api.nodeclaim import NodeClaim
from shared.api.storage import PersistentVolumeClaim, VolumeAttachment
from shared.cluster import node_class_groups, resources, writes
from shared.cluster.errors import NotFoundError
from shared.cluster.listing import list_objects
from shared.termination import garbage

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.cloud_provider import CloudProvider, Instance
    from shared.cluster.client import Client
    from shared.cluster.node_class_groups import NodeClaimList

T = TypeVar("T")


class ClusterCache:
    """Lists that are read at their first use. Thread-safe."""

    def __init__(self, client: Client, cloud_provider: CloudProvider) -> None:
        self._client = client
        self._cloud_provider = cloud_provider
        self._lists: dict[str, Any] = {}
        self._lock = RLock()

    def node_of(self, claim: NodeClaim) -> Node | None:
        """The NodeClaim's node, not from the cache if its name is known."""
        if not claim.status.provider_id:
            return None
        if claim.status.node_name:
            with contextlib.suppress(NotFoundError):
                node = writes.read(self._client, resources.NODES, claim.status.node_name, Node)
                if node.spec.provider_id == claim.status.provider_id:
                    return node
        return next((n for n in self.nodes() if n.spec.provider_id == claim.status.provider_id), None)

    def nodeclaim_of(self, node: Node) -> NodeClaim | None:
        """The NodeClaim with the node's providerID; the one that the node names is read, not looked for in the list."""
        provider_id = node.spec.provider_id
        if named := self.nodeclaim_with(nodeclaim.name_on(node), provider_id):
            return named
        return next((c for c in self.nodeclaims() if provider_id and c.status.provider_id == provider_id), None)

    def nodeclaim_with(self, name: str, provider_id: str) -> NodeClaim | None:
        """The NodeClaim of that name if its instance is this one, not from the cache: a list may lack it."""
        if not name or not provider_id:
            return None
        with contextlib.suppress(NotFoundError):
            claim = writes.read(self._client, resources.NODE_CLAIMS, name, NodeClaim)
            if claim.status.provider_id == provider_id and not node_class_groups.is_foreign(claim):
                return claim
        return None

    def nodes(self) -> tuple[Node, ...]:
        """Every node; those of other provisioners as unmanaged ones."""
        return self._read_once("nodes", self._list_nodes)

    def as_managed(self, node: Node) -> Node:
        """The node; one of another provisioner as an unmanaged one."""
        return node_class_groups.unmanaged([node], self._nodeclaim_list().foreign_provider_ids)[0]

    def nodeclaims(self) -> tuple[NodeClaim, ...]:
        """Every NodeClaim that can be decoded."""
        return self._nodeclaim_list().own.objects

    def instances(self) -> tuple[Instance, ...]:
        """Every instance with the cluster's tag."""
        return self._read_once("instances", self._cloud_provider.list)

    def instances_without_undecoded_nodeclaims(self) -> tuple[Instance, ...]:
        """Every instance with the cluster's tag, without those whose NodeClaim is foreign or can't be decoded."""
        claims = self._nodeclaim_list()
        undecoded = {invalid.ref.name for invalid in claims.own.invalid}
        own = [i for i in self.instances() if i.provider_id not in claims.foreign_provider_ids]
        return garbage.without_undecoded_nodeclaims(own, undecoded)

    def has_nodeclaim(self, instance: str) -> bool:
        """Whether the NodeClaim in the instance's tag exists and names it, although the list lacks it."""
        described = next(i for i in self.instances() if i.id == instance)
        return self.nodeclaim_with(described.tags.get(names.NODECLAIM_TAG, ""), described.provider_id) is not None

    def attachments(self, node: Node) -> tuple[VolumeAttachment, ...]:
        """The node's VolumeAttachments."""
        attachments = self._read_once(
            "attachments", lambda: list_objects(self._client, resources.VOLUME_ATTACHMENTS, VolumeAttachment).objects
        )
        return tuple(a for a in attachments if a.spec.node_name == node.metadata.name)

    def volumes(self, node: Node) -> dict[str, str]:
        """PersistentVolumes by PersistentVolumeClaim ("namespace/name"); none if nothing is attached to the node."""
        if not self.attachments(node):
            return {}
        volume_claims = self._read_once(
            "volumes",
            lambda: list_objects(self._client, resources.PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim).objects,
        )
        return {f"{c.metadata.namespace}/{c.metadata.name}": c.spec.volume_name for c in volume_claims}

    def _list_nodes(self) -> tuple[Node, ...]:
        nodes = list_objects(self._client, resources.NODES, Node).objects
        return node_class_groups.unmanaged(nodes, self._nodeclaim_list().foreign_provider_ids)

    def _nodeclaim_list(self) -> NodeClaimList:
        return self._read_once("nodeclaims", lambda: node_class_groups.list_node_claims(self._client))

    def _read_once(self, key: str, read: Callable[[], T]) -> T:
        with self._lock:
            if key not in self._lists:
                self._lists[key] = read()
            cached: T = self._lists[key]
            return cached
