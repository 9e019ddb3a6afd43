"""Reads the snapshot for decisions from the API server.

Each list is consistent in itself (paging keeps the resourceVersion), but the lists are made one after another. Their
order determines which races are possible: **pods, then NodeClaims, then nodes, then the rest.**

- A pod that is seen pending existed before the NodeClaims were read. So a NodeClaim that an earlier decision created
  for it is seen too, and the pod is scheduled to that NodeClaim again instead of to a second one. (In the opposite
  order, a NodeClaim created between the two reads would be missed and a second one launched; the lease prevents that
  as well, but this order doesn't depend on the lease.)
- A NodeClaim with a node name was read before the nodes, so its node is in the list unless it was deleted. (In the
  opposite order, a node that registered between the two reads would look like a NodeClaim without its node, which is
  garbage.)
- A bound pod's node was read after the pod, so the node is known, and the pod's requests are counted on it.
- One race remains: a pod that was bound after the pods were read is missing on its node. Scheduling still has it as
  pending, which takes the same capacity; disruption lists a node's pods again before it acts
  (:func:`shared.cluster.watched_objects.list_pods_on_node`).

All lists are consistent reads (no ``resourceVersion=0``), never from a cache that lags. In a warm process the
pods and nodes of a large cluster are updated by a watch (``watched_objects`` says how reliable that is).

A list may still lack objects: a disturbed API server answers with too few, or none. What other objects name and a list
lacks is therefore asked for by name, as a list of one, which kube-apiserver reads by its key and not as a range
(``ListPredicate`` in apiserver/pkg/registry/generic/registry/store.go). If it exists, the lists are no snapshot.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from shared.api import decode, nodeclaim, nodeclass, nodepool
from shared.api import labels as names
from shared.api.capacity_buffer import CapacityBuffer
from shared.api.cluster_limits import least_of
from shared.api.daemon_set import DaemonSet
from shared.api.kubernetes import Namespace, Node, PodDisruptionBudget
from shared.api.limit_range import LimitRange
from shared.api.nodeclass import EC2NodeClass
from shared.api.nodepool import NodePool
from shared.api.pods import is_daemon, pod_group_key
from shared.api.provisioning_request import ProvisioningRequest
from shared.api.storage import (
    CSIDriver,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from shared.base import runtime
from shared.base.runtime import in_threads
from shared.base.struct import with_fields
from shared.cluster import capacity_buffers, listing, node_class_groups, pod_groups, provisioning_requests, resources
from shared.cluster.errors import ForbiddenError, NotFoundError, UnavailableError
from shared.cluster.listing import ObjectList
from shared.cluster.node_class_groups import NodeClaimList
from shared.cluster.provisioning_requests import RequestedRoom
from shared.cluster.watched_objects import NodeCache, PodCache
from shared.snapshot import BufferObjects, InvalidObject, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from datetime import datetime

    from shared.api.decode import Outcome
    from shared.api.kubernetes import Pod
    from shared.api.node_overlay import NodeOverlay
    from shared.api.nodeclaim import NodeClaim
    from shared.api.pod_group import PodGroup
    from shared.api.pod_references import PodGroupKey
    from shared.api.quantity import Resources
    from shared.cluster.client import Client
    from shared.cluster.resources import Resource

_MAX_UNLISTED = 100
"""How many objects of a kind are asked for by name: if a list is incomplete, one of them is there."""
_MAX_NODES_OF_PODS = 5
"""As many nodes that only pods name: pods outlive a deleted node for a minute."""

_LOOKED_FOR = timedelta(minutes=5)
"""How long a kind that the cluster doesn't have is taken to be missing."""
_INCOMPLETE = "IncompleteList"

T = TypeVar("T")
P = TypeVar("P", bound=NodePool | EC2NodeClass)


class SnapshotReader:
    """Reads snapshots of one cluster; in a warm process it caches pods and nodes and reads only their changes."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.pods = PodCache(client)
        self.nodes = NodeCache(client)

    def read(self, now: datetime, leaving: Collection[str] | None = ()) -> Snapshot:
        """As :func:`read_snapshot`."""
        try:
            return self._read(now, leaving)
        except UnavailableError as error:
            if error.reason == _INCOMPLETE:  # what lacks objects is no base for their changes
                self.pods, self.nodes = PodCache(self.client), NodeCache(self.client)
            raise

    def _read(self, now: datetime, leaving: Collection[str] | None) -> Snapshot:
        invalid: list[InvalidObject] = []

        def list_all(resource: Resource, kind: type[T]) -> tuple[T, ...]:
            listed = list_if_kind_exists(self.client, resource, kind)
            invalid.extend(listed.invalid)
            return listed.objects

        pods = self.pods.read()
        claims = self.node_claims()
        invalid.extend(claims.own.invalid)
        listed_nodes = self.nodes.read()
        invalid.extend(listed_nodes.invalid)
        nodes = node_class_groups.unmanaged(listed_nodes.objects, claims.foreign_provider_ids)
        self._require_complete(pods, claims.own, with_fields(listed_nodes, objects=nodes))
        if leaving is not None:
            del pods  # together with those of another list they would take twice the memory
            pods = self.pods.read_on_nodes(_leaving_nodes(nodes, claims.own.objects) | set(leaving))
        invalid.extend(pods.invalid)
        raw_pools = list_raw(self.client, resources.NODE_POOLS, resources.PROVISIONERS)
        raw_classes = list_raw(self.client, resources.NODE_CLASSES, resources.NODE_TEMPLATES)
        node_pools, invalid_pools = convert_node_pools(raw_pools)
        node_classes, invalid_classes = convert_node_classes(raw_classes)
        invalid.extend((*invalid_pools, *invalid_classes))
        overlays, invalid_overlays = convert_node_overlays(list_raw(self.client, resources.NODE_OVERLAYS))
        invalid.extend(invalid_overlays)
        buffers, invalid_buffers = self._capacity_buffers()
        requests, invalid_requests = list_provisioning_requests(self.client)
        invalid.extend((*invalid_buffers, *invalid_requests))
        requested = RequestedRoom()
        if requests:
            templates = provisioning_requests.templates_of(self.client)
            requested = provisioning_requests.wanted_room(templates, requests, pods.objects, now=now)
        csi_nodes = list_all(resources.CSI_NODES, CSINode)
        daemon_sets = list_all(resources.DAEMON_SETS, DaemonSet)
        _require_pods(pods.objects, daemon_sets)
        return Snapshot(
            taken_at=now,
            pods=pods.objects,
            node_claims=claims.own.objects,
            nodes=nodes,
            node_pools=node_pools,
            node_classes=node_classes,
            node_overlays=overlays,
            daemon_sets=daemon_sets,
            limit_ranges=list_all(resources.LIMIT_RANGES, LimitRange),
            namespaces=list_all(resources.NAMESPACES, Namespace),
            persistent_volumes=list_all(resources.PERSISTENT_VOLUMES, PersistentVolume),
            persistent_volume_claims=list_all(resources.PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim),
            storage_classes=list_all(resources.STORAGE_CLASSES, StorageClass),
            csi_nodes=csi_nodes,
            csi_drivers=list_all(resources.CSI_DRIVERS, CSIDriver) if _drivers_differ(csi_nodes) else (),
            volume_attachments=list_all(resources.VOLUME_ATTACHMENTS, VolumeAttachment),
            pod_disruption_budgets=list_all(resources.POD_DISRUPTION_BUDGETS, PodDisruptionBudget),
            capacity_buffers=(*buffers, *requested.buffers),
            pod_groups={**self._pod_groups(pods.objects), **requested.pod_groups},
            invalid=tuple(invalid),
            foreign_provider_ids=claims.foreign_provider_ids,
            foreign_pools=node_class_groups.foreign_pools(raw_pools),
            cluster_limits=cluster_limits(raw_pools),
        )

    def _require_complete(self, pods: ObjectList[Pod], claims: ObjectList[NodeClaim], nodes: ObjectList[Node]) -> None:
        """Ask for the nodes and NodeClaims that others name and these lists lack.

        Raises:
            UnavailableError: one of them exists.
        """
        unlisted = [
            *_first(resources.NODES, _unlisted(_nodes_of_pods(pods), nodes), _MAX_NODES_OF_PODS),
            *_first(resources.NODES, _unlisted(_nodes_of_claims(claims), nodes), _MAX_UNLISTED),
            *_first(resources.NODE_CLAIMS, _unlisted(_claims_of_nodes(nodes), claims), _MAX_UNLISTED),
        ]
        if existing := next(filter(None, in_threads(self._existing, unlisted)), ""):
            raise UnavailableError(0, _INCOMPLETE, f"the API server's list lacks {existing}, which exists")

    def _existing(self, named: tuple[Resource, str, str]) -> str:
        """The object's kind and name if it exists, as (resource, name, providerID); "" if not. Any providerID: ""."""
        resource, name, provider_id = named
        fields = f"metadata.name={name}"
        if resource is resources.NODES:
            ids = [n.spec.provider_id for n in listing.list_objects(self.client, resource, Node, fields=fields).objects]
        else:
            ids = [c.status.provider_id for c in self.node_claims(fields=fields).own.objects]
        return f"{resource.kind} {name}" if ids and provider_id in {"", *ids} else ""

    def _capacity_buffers(self) -> tuple[tuple[BufferObjects, ...], tuple[InvalidObject, ...]]:
        """The CapacityBuffers, and the invalid ones; none if the cluster doesn't have the kind."""
        listed = listing.list_served(self.client, resources.CAPACITY_BUFFER_VERSIONS, CapacityBuffer)
        if not listed.objects:
            return (), listed.invalid
        buffers, invalid = capacity_buffers.with_references(self.client, listed.objects)
        return buffers, (*listed.invalid, *invalid)

    def _pod_groups(self, pods: Iterable[Pod]) -> Mapping[PodGroupKey, PodGroup]:
        groups = _groups(pods)
        return pod_groups.read(self.client, groups) if groups else {}

    def node_claims(self, *, fields: str = "") -> NodeClaimList:
        """The NodeClaims now, or those that the field selector selects; none if the cluster doesn't have the kind."""
        try:
            return node_class_groups.list_node_claims(self.client, fields=fields)
        except NotFoundError:
            return NodeClaimList(ObjectList())


def _nodes_of_pods(pods: ObjectList[Pod]) -> dict[str, str]:
    """The nodes that the pods name, each with any providerID ("")."""
    return dict.fromkeys((p.spec.node_name for p in pods.objects), "")


def _nodes_of_claims(claims: ObjectList[NodeClaim]) -> dict[str, str]:
    """The nodes of the NodeClaims that are not being deleted, each with its providerID."""
    live = (c for c in claims.objects if c.metadata.deletion_timestamp is None)
    return {c.status.node_name: c.status.provider_id for c in live}


def _claims_of_nodes(nodes: ObjectList[Node]) -> dict[str, str]:
    """The NodeClaims that the nodes name, each with its providerID."""
    own = (n for n in nodes.objects if names.NODEPOOL in n.metadata.labels)
    return {nodeclaim.name_on(n): n.spec.provider_id for n in own}


def _first(resource: Resource, named: Mapping[str, str], most: int) -> list[tuple[Resource, str, str]]:
    return [(resource, *of_name) for of_name in [*named.items()][:most]]


def _unlisted(named: Mapping[str, str], listed: ObjectList[Any]) -> dict[str, str]:
    """Those of the names, each with a providerID, that the list doesn't have."""
    known = {obj.metadata.name for obj in listed.objects} | {invalid.ref.name for invalid in listed.invalid} | {""}
    return {name: provider_id for name, provider_id in named.items() if name not in known}


def _require_pods(pods: Iterable[Pod], daemon_sets: Iterable[DaemonSet]) -> None:
    """Raises UnavailableError where no pod has a node, but the controller of a DaemonSet has counted some.

    It also counts pods that are pending, each for the one node that it may run on (``updateDaemonSetStatus`` in
    kubernetes/pkg/controller/daemon): they may be too large for all nodes.
    """
    counted = next((d.metadata.name for d in daemon_sets if d.status.current_number_scheduled), "")
    if counted and not any(p.spec.node_name or is_daemon(p) for p in pods):
        raise UnavailableError(0, _INCOMPLETE, f"the API server's list lacks the pods of DaemonSet {counted}")


def _groups(pods: Iterable[Pod]) -> list[PodGroupKey]:
    """The PodGroups of pods that wait for a node, then Kubernetes' own ones of pods that run, for how they end."""
    waiting, running = set(), set()
    for pod in pods:
        key = pod_group_key(pod)
        if key is None:
            continue
        if not (pod.spec.node_name or pod.spec.scheduling_gates):
            waiting.add(key)
        elif pod.spec.scheduling_group is not None:
            running.add(key)
    return [*sorted(waiting), *sorted(running - waiting)]


def _drivers_differ(csi_nodes: Iterable[CSINode]) -> bool:
    """Whether a node lacks a CSI driver that another has: only then it matters what the drivers ask for."""
    return len({frozenset(driver.name for driver in csi_node.spec.drivers) for csi_node in csi_nodes}) > 1


def _leaving_nodes(nodes: Iterable[Node], claims: Iterable[NodeClaim]) -> set[str]:
    """The names of the nodes that are being deleted, by themselves or with their NodeClaim."""
    deleted = {c.status.provider_id for c in claims if c.metadata.deletion_timestamp is not None}
    return {
        n.metadata.name
        for n in nodes
        if n.metadata.deletion_timestamp is not None or (n.spec.provider_id and n.spec.provider_id in deleted)
    }


def read_snapshot(client: Client, *, now: datetime, leaving: Collection[str] | None = ()) -> Snapshot:
    """The snapshot for decisions; ``now`` becomes ``taken_at``.

    Nodes are launched for the pods of nodes that are being deleted, and of ``leaving`` nodes (by name). So these pods
    are listed again where the others come from a warm process's watch, which may lag. None: that isn't necessary, as
    nothing is launched.

    Objects that can't be used are in ``invalid``. A kind that the cluster doesn't have (mostly the legacy ones) has no
    objects.

    Raises:
        ApiError: the API server can't be read.
    """
    return cached_reader(client).read(now, leaving)


def cached_reader(client: Client) -> SnapshotReader:
    """The reader of this process, which has its pods already."""
    reader = runtime.cached("cluster:reader", lambda: SnapshotReader(client))
    return reader if reader.client is client else SnapshotReader(client)


def list_if_kind_exists(client: Client, resource: Resource, kind: type[T]) -> ObjectList[T]:
    """The objects of a kind; none if the cluster doesn't have the kind."""
    try:
        return listing.list_objects(client, resource, kind)
    except NotFoundError:
        return ObjectList()


def list_node_pools(client: Client) -> tuple[NodePool, ...]:
    """The valid NodePools, legacy ones converted."""
    return convert_node_pools(list_raw(client, resources.NODE_POOLS, resources.PROVISIONERS))[0]


def list_provisioning_requests(
    client: Client,
) -> tuple[tuple[ProvisioningRequest, ...], tuple[InvalidObject, ...]]:
    """The ProvisioningRequests that nodes are launched or kept for, and the invalid ones.

    Few clusters have the kind: in a warm process it is looked for every five minutes.
    """
    looked: dict[str, datetime] = runtime.cached("cluster:no-provisioning-requests", dict)
    now = runtime.now()
    if "until" in looked and now < looked["until"]:
        return (), ()
    for resource in resources.PROVISIONING_REQUEST_VERSIONS:
        try:
            listed = listing.list_objects(client, resource, ProvisioningRequest)
            break
        except (NotFoundError, ForbiddenError):  # rights of the cluster may be older than this function
            continue
    else:
        looked["until"] = now + _LOOKED_FOR
        return (), ()
    return tuple(r for r in listed.objects if r.is_open), listed.invalid


def list_raw(client: Client, *kinds: Resource) -> list[dict[str, Any]]:
    """The objects of these kinds as plain JSON, each with its ``apiVersion`` and ``kind``."""
    return [
        {"apiVersion": resource.api_version, "kind": resource.kind, **item}
        for resource in kinds
        for item in list_if_kind_exists(client, resource, dict[str, Any]).objects
    ]


def convert_node_pools(raw_objects: Iterable[dict[str, Any]]) -> tuple[tuple[NodePool, ...], tuple[InvalidObject, ...]]:
    """The valid NodePools, converted from Provisioners if legacy, and the invalid objects; none of other groups.

    If a legacy object and a v1 object have the same name, the v1 object is used, because both often exist after a
    migration; the legacy object is reported as invalid.
    """
    return _convert(node_class_groups.own_node_pools(raw_objects), decode.node_pool, nodepool.API_VERSION)


def cluster_limits(raw_objects: Iterable[dict[str, Any]]) -> Resources:
    """The limits over all NodePools that these objects set; those of invalid NodePools hold too."""
    own = node_class_groups.own_node_pools(raw_objects)
    return limits_of_annotations((raw.get("metadata") or {}).get("annotations") or {} for raw in own)


def limits_of_annotations(annotations: Iterable[Mapping[str, str]]) -> Resources:
    """The limits over all NodePools that the NodePools' annotations set."""
    texts = [str(own[names.CLUSTER_LIMITS]) for own in annotations if names.CLUSTER_LIMITS in own]
    if not texts:
        return {}
    return least_of(texts)


def convert_node_classes(
    raw_objects: Iterable[dict[str, Any]],
) -> tuple[tuple[EC2NodeClass, ...], tuple[InvalidObject, ...]]:
    """The valid EC2NodeClasses, converted from AWSNodeTemplates if legacy, and the invalid objects: as NodePools."""
    return _convert(raw_objects, decode.node_class, nodeclass.API_VERSION)


def convert_node_overlays(
    raw_objects: Iterable[dict[str, Any]],
) -> tuple[tuple[NodeOverlay, ...], tuple[InvalidObject, ...]]:
    """The valid NodeOverlays that aren't being deleted, by name, and the invalid ones."""
    outcomes = [decode.read_node_overlay(raw) for raw in raw_objects]
    valid = [o.value for o in outcomes if o.value is not None and o.value.metadata.deletion_timestamp is None]
    invalid = tuple(InvalidObject(ref=o.ref, problems=o.problems) for o in outcomes if o.value is None)
    return tuple(sorted(valid, key=lambda overlay: overlay.name)), invalid


def _convert(
    raw_objects: Iterable[dict[str, Any]], convert: Callable[[dict[str, Any]], Outcome[P]], api_version: str
) -> tuple[tuple[P, ...], tuple[InvalidObject, ...]]:
    outcomes = [convert(raw) for raw in raw_objects]
    valid = [outcome.value for outcome in outcomes if outcome.value is not None]
    v1_objects = {obj.name: obj for obj in valid if obj.api_version == api_version}
    used = [obj for obj in valid if v1_objects.get(obj.name, obj) is obj]
    invalid = [InvalidObject(ref=o.ref, problems=o.problems) for o in outcomes if o.value is None]
    superseded = [_superseded(obj, v1_objects[obj.name]) for obj in valid if v1_objects.get(obj.name, obj) is not obj]
    return tuple(used), (*invalid, *superseded)


def _superseded(obj: NodePool | EC2NodeClass, used: NodePool | EC2NodeClass) -> InvalidObject:
    problem = f'metadata.name: "{obj.name}" is also the name of {used.ref}, which is used instead'
    return InvalidObject(ref=obj.ref, problems=(problem,), is_superseded=True)
