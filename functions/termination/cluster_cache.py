"""What one invocation of termination reads of the cluster and of EC2: each list once, for all claims it follows."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from shared.api.kubernetes import Node
from shared.api.nodeclaim import NodeClaim
from shared.api.storage import PersistentVolumeClaim, VolumeAttachment
from shared.cluster import resources, writes
from shared.cluster.errors import NotFoundError
from shared.cluster.listing import list_objects
from shared.launch.instances import describe_cluster_instances
from shared.termination import garbage

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.cluster.client import Client
    from shared.cluster.listing import ObjectList
    from shared.launch.instances import Instance

T = TypeVar("T")


class Listings:
    """Lists that are made when they are first asked for. ``cluster`` is the cluster's name."""

    def __init__(self, client: Client, cluster: str) -> None:
        self._client = client
        self._cluster = cluster
        self._kept: dict[str, Any] = {}

    def node_of(self, claim: NodeClaim) -> Node | None:
        """The claim's node as it is now."""
        if not claim.status.provider_id:
            return None
        if claim.status.node_name:
            with contextlib.suppress(NotFoundError):
                node = writes.read(self._client, resources.NODES, claim.status.node_name, Node)
                if node.spec.provider_id == claim.status.provider_id:
                    return node
        return next((n for n in self.nodes() if n.spec.provider_id == claim.status.provider_id), None)

    def claim_of(self, node: Node) -> NodeClaim | None:
        """The claim whose instance the node runs on."""
        identity = node.spec.provider_id
        return next((c for c in self.claims() if identity and c.status.provider_id == identity), None)

    def nodes(self) -> tuple[Node, ...]:
        """Every node."""
        return self._once("nodes", lambda: list_objects(self._client, resources.NODES, Node).objects)

    def claims(self) -> tuple[NodeClaim, ...]:
        """Every claim that can be read."""
        return self._claims().objects

    def instances(self) -> tuple[Instance, ...]:
        """Every instance that carries the cluster's tag."""
        return self._once("instances", lambda: describe_cluster_instances(self._cluster))

    def readable_instances(self) -> tuple[Instance, ...]:
        """Those whose claim could be read, if they have one."""
        return garbage.without_undecoded_nodeclaims(self.instances(), {bad.ref.name for bad in self._claims().invalid})

    def attachments(self, node: Node) -> tuple[VolumeAttachment, ...]:
        """What is attached to the node."""
        found = self._once(
            "attachments", lambda: list_objects(self._client, resources.VOLUME_ATTACHMENTS, VolumeAttachment).objects
        )
        return tuple(a for a in found if a.spec.node_name == node.metadata.name)

    def volumes(self, node: Node) -> dict[str, str]:
        """The volumes of volume claims ("namespace/name"), where anything is attached to the node at all."""
        if not self.attachments(node):
            return {}
        found = self._once(
            "volumes",
            lambda: list_objects(self._client, resources.PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim).objects,
        )
        return {f"{c.metadata.namespace}/{c.metadata.name}": c.spec.volume_name for c in found}

    def _claims(self) -> ObjectList[NodeClaim]:
        return self._once("claims", lambda: list_objects(self._client, resources.NODE_CLAIMS, NodeClaim))

    def _once(self, what: str, make: Callable[[], T]) -> T:
        if what not in self._kept:
            self._kept[what] = make()
        kept: T = self._kept[what]
        return kept
