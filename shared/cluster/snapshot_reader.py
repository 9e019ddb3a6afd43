"""The snapshot that decisions are made from, read from the API server.

Each list is of one version (paging keeps it), but the lists follow one another, so what can happen between them is
chosen: **pods, then claims, then nodes, then the rest.**

- A pod that is seen pending was there before the claims were read. Any claim made for it by a decision that has ended
  is therefore seen too, and the pod is placed on it again instead of on a second one. (The other way round, a claim
  written between the two reads would be missed and the pod be launched for twice; the lease forbids it as well, but
  this order doesn't depend on the lease.)
- A claim that says which node it has was read before the nodes, so its node is there unless it is gone. (The other way
  round, a node that joined between the two reads would look like a claim without its node, which is garbage.)
- A bound pod's node was read after the pod, so its node is known, and its room is not counted as free.
- What is left: a pod bound after the pods were read isn't seen on its node. Placing has it pending still, which is
  the same room; disruption looks at a node's pods again (:func:`list_pods_on_node`) before it acts.

All lists are consistent reads (no ``resourceVersion=0``): never from a cache that lags. The pods of a large cluster are
caught up by a watch in a warm process (``pod_cache`` says how far that can be trusted).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from shared import runtime
from shared.api.kubernetes import DaemonSet, Namespace, Node, Pod, PodDisruptionBudget
from shared.api.nodeclaim import NodeClaim
from shared.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment
from shared.cluster import conversion, listing, resources
from shared.cluster.errors import NotFoundError
from shared.cluster.listing import ObjectList
from shared.cluster.pod_cache import UNFINISHED, WORTH, PodCache
from shared.snapshot import InvalidObject, Snapshot

if TYPE_CHECKING:
    from datetime import datetime

    from shared.cluster.client import Client
    from shared.cluster.resources import Resource

T = TypeVar("T")


class SnapshotReader:
    """Reads snapshots of one cluster; a warm one keeps the pods, and reads only what changed."""

    def __init__(self, client: Client, *, worth: int = WORTH) -> None:
        """``worth``: from how many pods on they are caught up instead of listed."""
        self.client = client
        self.pods = PodCache(client, worth=worth)

    def read(self, now: datetime) -> Snapshot:
        """As :func:`read_snapshot`."""
        invalid: list[InvalidObject] = []

        def every(resource: Resource, kind: type[T]) -> tuple[T, ...]:
            listed = list_if_kind_exists(self.client, resource, kind)
            invalid.extend(listed.invalid)
            return listed.objects

        pods = self.pods.read()
        invalid.extend(pods.invalid)
        node_claims = every(resources.NODE_CLAIMS, NodeClaim)
        nodes = every(resources.NODES, Node)
        raw_pools = _raw(self.client, resources.NODE_POOLS, resources.PROVISIONERS)
        raw_classes = _raw(self.client, resources.NODE_CLASSES, resources.NODE_TEMPLATES)
        node_pools, bad_pools = conversion.node_pools(raw_pools)
        node_classes, bad_classes = conversion.node_classes(raw_classes)
        invalid.extend((*bad_pools, *bad_classes))
        return Snapshot(
            taken_at=now,
            pods=pods.objects,
            node_claims=node_claims,
            nodes=nodes,
            node_pools=node_pools,
            node_classes=node_classes,
            daemon_sets=every(resources.DAEMON_SETS, DaemonSet),
            namespaces=every(resources.NAMESPACES, Namespace),
            persistent_volumes=every(resources.PERSISTENT_VOLUMES, PersistentVolume),
            persistent_volume_claims=every(resources.PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim),
            storage_classes=every(resources.STORAGE_CLASSES, StorageClass),
            csi_nodes=every(resources.CSI_NODES, CSINode),
            volume_attachments=every(resources.VOLUME_ATTACHMENTS, VolumeAttachment),
            pod_disruption_budgets=every(resources.POD_DISRUPTION_BUDGETS, PodDisruptionBudget),
            invalid=tuple(invalid),
        )


def read_snapshot(client: Client, *, now: datetime) -> Snapshot:
    """Everything decisions need; ``now`` becomes ``taken_at``.

    An object that can't be used is in ``invalid`` and the rest goes on. A kind that the cluster doesn't have (the
    legacy ones, mostly) has no objects.

    Raises:
        ApiError: the API server can't be read.
    """
    reader = runtime.current().cached("cluster:reader", lambda: SnapshotReader(client))
    if reader.client is not client:
        reader = SnapshotReader(client)
    return reader.read(now)


def list_if_kind_exists(client: Client, resource: Resource, kind: type[T]) -> ObjectList[T]:
    """The objects of a kind; none where the cluster doesn't have the kind."""
    try:
        return listing.list_objects(client, resource, kind)
    except NotFoundError:
        return ObjectList()


def list_pods_on_node(client: Client, node: str) -> ObjectList[Pod]:
    """The unfinished pods bound to a node, as they are now."""
    return listing.list_objects(client, resources.PODS, Pod, fields=f"spec.nodeName={node},{UNFINISHED}")


def _raw(client: Client, *kinds: Resource) -> list[dict[str, Any]]:
    """The objects of these kinds as plain JSON; each says what it is."""
    return [
        {"apiVersion": resource.api_version, "kind": resource.kind, **item}
        for resource in kinds
        for item in list_if_kind_exists(client, resource, dict[str, Any]).objects
    ]
