"""The pods and nodes of a warm process: listed once, then updated by a watch from the last resourceVersion.

They are nearly all of a large cluster's bytes, so only they are cached; all other kinds are listed every time.

A watch doesn't say when it is up to date, so two conditions decide that. An event with a resourceVersion at or after
that of a list made just before proves it. If there is no such event (often nothing changed), the stream must be silent
for a moment, and the pods without a node, which that list reads consistently, must equal the cached ones: a binding,
creation or deletion that is still on its way shows there. Only changes to bound pods can lag unnoticed, if the API
server takes longer than the silence to send the first event; whoever acts on such a pod lists it again
(:func:`list_pods_on_node`, :meth:`PodCache.read_on_nodes`). A silence is believed for :data:`MAX_UNPROVEN` after the
last list or proof. After that a large cluster's watch is kept open until its bookmark, which is such a proof. Without
one, in any doubt, and when the resourceVersion has expired, everything is listed again.

Of a large cluster's nodes some kubelet reports every moment, so for them only an event is believed.
"""

from __future__ import annotations

import gc
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from shared.api.kubernetes import RESIZE_PENDING, Node, Pod, PodSpec
from shared.base import runtime
from shared.base.runtime import in_threads
from shared.base.struct import WireStruct, with_fields
from shared.cluster import listing
from shared.cluster.errors import ApiError
from shared.cluster.listing import ObjectList
from shared.cluster.resources import NODES, PODS
from shared.cluster.watch import WatchLagsError, WatchStream, is_at_least
from shared.snapshot import InvalidObject

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from shared.api.kubernetes import PodStatus
    from shared.api.meta import Condition, ObjectMeta
    from shared.cluster.client import Client
    from shared.cluster.resources import Resource
    from shared.cluster.watch import WatchEvent

UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector of the pods that use or will use resources."""
UNBOUND = f"spec.nodeName=,{UNFINISHED}"
MIN_PODS_TO_WATCH = 1_000
"""From this many pods on, a watch is quicker than a list: two requests and a silence instead of two pages or more."""
MIN_NODES_TO_WATCH = 1_000
"""From this many nodes on, kubelets report several times a second, each node every five minutes
(``nodeStatusReportFrequency``), so a watch soon proves that it is up to date."""
SILENCE_SECONDS = 0.05
NODE_SILENCE_SECONDS = 1.0
"""After that time without a node's event, all nodes are listed."""
MAX_UNPROVEN = timedelta(minutes=2)
"""Where a slow API server's watch is always silent, pods that have gone are seen after this time."""
BOOKMARK_TIMEOUT = 3
"""Seconds of a watch that waits for its bookmark, which comes about two seconds before its time-out, so after one or
two (``nextBookmarkTime`` in apiserver/pkg/storage/cacher/cache_watcher.go)."""
MIN_PODS_FOR_BOOKMARK = 20_000
"""With fewer pods, listing them costs less than that wait."""
MAX_LISTED_NODES = 50
"""The pods of up to this many nodes are listed by node; for more nodes, all pods are listed."""
MAX_SILENCES = 20
"""After this many silences (a second) with unequal unbound pods, everything is listed again."""
READ_CONDITIONS = frozenset({"PodScheduled", "Ready", RESIZE_PENDING})
"""The types of a pod's conditions that something reads; a pod of a kubelet has five and more."""
_MAX_VALUES = 100_000
"""Different values that are remembered: some 15 MiB. With more, sharing starts again."""
_SPEC = tuple(f.name for f in msgspec.structs.fields(PodSpec) if f.type not in {bool, int | None})

_EMPTY: dict[type, Any] = {list: [], dict: {}}
_encode = msgspec.msgpack.Encoder().encode
_set = msgspec.structs.force_setattr

T = TypeVar("T")


class _Metadata(WireStruct, rename="camel"):
    resource_version: str = ""
    name: str = ""
    namespace: str = ""


class _MetadataOnly(WireStruct):
    metadata: _Metadata = _Metadata()


def _changed(event: WatchEvent, resource: Resource, kind: type[T]) -> tuple[_Metadata, T | InvalidObject | None]:
    """The metadata of an event's object, and the object; None: it is gone, or the event is a bookmark."""
    raw = bytes(event.object)
    metadata = msgspec.json.decode(raw, type=_MetadataOnly).metadata
    return metadata, None if event.type in {"BOOKMARK", "DELETED"} else listing.decode(raw, resource, kind)


def _replace(
    key: str, current: T | InvalidObject | None, objects: dict[str, T], invalid: dict[str, InvalidObject]
) -> None:
    """Put the object where it belongs now; one that is gone belongs nowhere."""
    objects.pop(key, None)
    invalid.pop(key, None)
    if isinstance(current, InvalidObject):
        invalid[key] = current
    elif current is not None:
        objects[key] = current


class ValueSharing:
    """Equal parts of pods as one object: pods of a template differ in little but their names, nodes and times.

    A decoded pod takes 3.5 KiB, nearly all of which is equal to parts of other pods: labels, owners, containers,
    tolerations, and a dozen empty lists. With shared parts it takes 0.8 KiB. What is shared is never changed: the API's
    types are immutable, and their lists and dictionaries are only read. Not thread-safe.
    """

    def __init__(self) -> None:
        self._values: dict[str | int, Any] = {}
        """Strings by themselves, other values by the hash of their encoding."""
        self._specs: dict[int, PodSpec] = {}
        """The first spec, without its node, of pods with these labels, by the labels' identity."""

    def share(self, pods: Iterable[Pod]) -> None:
        """Make equal parts of these pods, and of those before them, the same objects; drop what nobody reads.

        The pods were just decoded, so that nobody else has them.
        """
        if len(self._values) > _MAX_VALUES:
            self._specs.clear()
            self._values.clear()
        for pod in pods:
            self._share_metadata(pod.metadata)
            _set(pod, "spec", self._spec(pod.spec, pod.metadata.labels))
            self._share_status(pod.status)

    def _share_metadata(self, metadata: ObjectMeta) -> None:
        _set(metadata, "namespace", self._string(metadata.namespace))
        _set(metadata, "labels", self._shared(metadata.labels))
        _set(metadata, "annotations", self._shared(metadata.annotations))
        _set(metadata, "finalizers", self._shared(metadata.finalizers))
        _set(metadata, "owner_references", self._shared(metadata.owner_references))

    def _spec(self, spec: PodSpec, labels: dict[str, str]) -> PodSpec:
        """An equal spec that shares all but the node's name with other pods of the template.

        The volume of each pod's own token has a name of its own, and ties the pod to no node.
        """
        node_name = spec.node_name
        _set(spec, "node_name", "")
        _set(spec, "volumes", [v for v in spec.volumes if v.ties_to_nodes] if spec.volumes else _EMPTY[list])
        shared = self._specs.get(id(labels))
        if shared != spec:
            shared = with_fields(spec, **{name: self._shared(getattr(spec, name)) for name in _SPEC})
            self._specs.setdefault(id(labels), shared)
        return with_fields(shared, node_name=self._string(node_name)) if node_name else shared

    def _share_status(self, status: PodStatus) -> None:
        _set(status, "phase", self._string(status.phase))
        _set(status, "conditions", [self._condition(c) for c in status.conditions if c.type in READ_CONDITIONS])
        _set(status, "container_statuses", self._shared(status.container_statuses))
        _set(status, "init_container_statuses", self._shared(status.init_container_statuses))
        _set(status, "allocated_resources", self._shared(status.allocated_resources))

    def _condition(self, condition: Condition) -> Condition:
        _set(condition, "type", self._string(condition.type))
        _set(condition, "status", self._string(condition.status))
        _set(condition, "reason", self._string(condition.reason))
        _set(condition, "message", self._string(condition.message))
        return condition

    def _string(self, value: str) -> str:
        shared: str = self._values.setdefault(value, value)
        return shared

    def _shared(self, value: T) -> T:
        if not value:
            empty: T = _EMPTY.get(type(value), value)
            return empty
        shared: T = self._values.setdefault(hash(_encode(value)), value)
        return shared if shared == value else value


class PodCache:
    """The unfinished pods of a cluster. Not thread-safe.

    ``min_pods_to_watch``: with fewer pods everything is listed each time; ``max_silences`` and
    ``min_pods_for_bookmark``: see the module.
    """

    def __init__(
        self,
        client: Client,
        *,
        min_pods_to_watch: int = MIN_PODS_TO_WATCH,
        max_silences: int = MAX_SILENCES,
        min_pods_for_bookmark: int = MIN_PODS_FOR_BOOKMARK,
        now: Callable[[], datetime] = runtime.now,
    ) -> None:
        self._client = client
        self._now = now
        self._max_silences = max_silences
        self._min_pods_to_watch = min_pods_to_watch
        self._min_pods_for_bookmark = min_pods_for_bookmark
        self._version = ""
        self._pods: dict[str, Pod] = {}
        self._unbound_versions: dict[str, str] = {}
        """The resourceVersions of the pods without a node."""
        self._invalid: dict[str, InvalidObject] = {}
        self._sharing = ValueSharing()
        self._is_frozen = False
        self._proven_at = datetime.min.replace(tzinfo=UTC)
        self.lists = 0
        """How many times everything was listed."""
        self._is_listed = False

    def read(self) -> ObjectList[Pod]:
        """The current pods.

        Raises:
            ApiError: the API server can't be read.
        """
        self._is_listed = False
        if self._version and len(self._pods) >= self._min_pods_to_watch:
            try:
                self._update_by_watch()
            except (ApiError, WatchLagsError):
                # Expired, broken or not permitted: a list is always right, and raises if it isn't possible either.
                self._list()
        else:
            self._list()
        return self._objects()

    def read_on_nodes(self, nodes: Collection[str]) -> ObjectList[Pod]:
        """The pods of the last :meth:`read`; those on these nodes (by name) are current, not as the watch last said.

        Raises:
            ApiError: the API server can't be read.
        """
        if self._is_listed or not nodes:
            return self._objects()
        occupied = sorted({pod.spec.node_name for pod in self._pods.values()}.intersection(nodes))
        if len(occupied) > MAX_LISTED_NODES:
            self._list()
            return self._objects()
        listed = in_threads(partial(list_pods_on_node, self._client), occupied)
        stale = {key for key, pod in self._pods.items() if pod.spec.node_name in nodes}
        current = {pod.key: pod for on_node in listed for pod in on_node.objects}
        for key in stale - current.keys():
            del self._pods[key]
        self._pods |= current
        return self._objects()

    def _objects(self) -> ObjectList[Pod]:
        return ObjectList(
            objects=tuple(self._pods.values()), invalid=tuple(self._invalid.values()), version=self._version
        )

    def _list(self) -> None:
        # The pods so far go first: together with the new ones they would take twice the memory.
        self._version, self._pods, self._unbound_versions, self._invalid = "", {}, {}, {}
        self._sharing = ValueSharing()
        if self._is_frozen:
            gc.collect()  # frozen objects are never collected, so garbage created since must not be frozen with them
        with runtime.gc_paused():
            listed = listing.list_objects(self._client, PODS, Pod, fields=UNFINISHED, after_page=self._sharing.share)
            self._pods = {pod.key: pod for pod in listed.objects}
            self._unbound_versions = {
                key: pod.metadata.resource_version for key, pod in self._pods.items() if not pod.spec.node_name
            }
            self._invalid = {f"{invalid.ref.namespace}/{invalid.ref.name}": invalid for invalid in listed.invalid}
            if len(self._pods) >= max(self._min_pods_to_watch, 1):
                # Pods hold no cycles, so reference counting frees them. The collector would traverse 20,000 of them for
                # a quarter of a second during the first update, and again at every full collection.
                gc.freeze()
                self._is_frozen = True
        self._version = listed.version
        self._proven_at = self._now()
        self._is_listed = True
        self.lists += 1

    def _update_by_watch(self) -> None:
        unbound = listing.list_objects(self._client, PODS, Pod, fields=UNBOUND)
        target = {pod.key: pod.metadata.resource_version for pod in unbound.objects}
        if is_at_least(self._version, unbound.version) and self._version != unbound.version:
            raise WatchLagsError  # etcd was restored from a backup: a watch would be silent until its old version
        watch = self._client.watch(PODS.path(), resource_version=self._version, fields=UNFINISHED)
        stream = WatchStream(watch, name="watch pods")
        try:
            silences = 0
            while silences < self._max_silences:
                event = stream.next(SILENCE_SECONDS)
                if event is None:
                    silences += 1
                    if self._unbound_versions == target:
                        break
                else:
                    self._apply(event)
                    if is_at_least(self._version, unbound.version):
                        self._proven_at = self._now()
                        return
        finally:
            stream.close()
        if self._unbound_versions != target:
            raise WatchLagsError
        if self._now() - self._proven_at >= MAX_UNPROVEN:
            self._wait_for_bookmark(unbound.version)

    def _wait_for_bookmark(self, version: str) -> None:
        """Prove that the pods are as of that version, or later."""
        if len(self._pods) < self._min_pods_for_bookmark:
            raise WatchLagsError
        watch = self._client.watch(
            PODS.path(), resource_version=self._version, fields=UNFINISHED, timeout=BOOKMARK_TIMEOUT
        )
        stream = WatchStream(watch, name="watch pods")
        try:
            while (event := stream.next(BOOKMARK_TIMEOUT)) is not None:
                self._apply(event)
                if is_at_least(self._version, version):
                    self._proven_at = self._now()
                    return
        finally:
            stream.close()
        raise WatchLagsError

    def _apply(self, event: WatchEvent) -> None:
        metadata, pod = _changed(event, PODS, Pod)
        self._version = metadata.resource_version
        key = f"{metadata.namespace or 'default'}/{metadata.name}"
        _replace(key, pod, self._pods, self._invalid)
        self._unbound_versions.pop(key, None)
        if isinstance(pod, Pod):
            self._sharing.share((pod,))
            if not pod.spec.node_name:
                self._unbound_versions[key] = metadata.resource_version


def list_pods_on_node(client: Client, node: str) -> ObjectList[Pod]:
    """The current unfinished pods of a node."""
    return listing.list_objects(client, PODS, Pod, fields=f"spec.nodeName={node},{UNFINISHED}")


class NodeCache:
    """The nodes of a cluster. Not thread-safe."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._version = ""
        self._nodes: dict[str, Node] = {}
        self._invalid: dict[str, InvalidObject] = {}
        self.lists = 0
        """How many times everything was listed."""

    def read(self) -> ObjectList[Node]:
        """The current nodes.

        Raises:
            ApiError: the API server can't be read.
        """
        if len(self._nodes) < MIN_NODES_TO_WATCH:
            self._list()
        else:
            try:
                self._update_by_watch()
            except (ApiError, WatchLagsError):
                self._list()
        nodes, invalid = tuple(self._nodes.values()), tuple(self._invalid.values())
        return ObjectList(objects=nodes, invalid=invalid, version=self._version)

    def _list(self) -> None:
        self._nodes, self._invalid = {}, {}
        listed = listing.list_objects(self._client, NODES, Node)
        self._nodes = {node.metadata.name: node for node in listed.objects}
        self._invalid = {invalid.ref.name: invalid for invalid in listed.invalid}
        self._version = listed.version
        self.lists += 1

    def _update_by_watch(self) -> None:
        version = listing.version_of(self._client, NODES)
        if is_at_least(self._version, version):
            if self._version == version:
                return
            raise WatchLagsError  # etcd was restored from a backup
        stream = WatchStream(self._client.watch(NODES.path(), resource_version=self._version), name="watch nodes")
        try:
            while (event := stream.next(NODE_SILENCE_SECONDS)) is not None:
                self._apply(event)
                if is_at_least(self._version, version):
                    return
        finally:
            stream.close()
        raise WatchLagsError

    def _apply(self, event: WatchEvent) -> None:
        metadata, node = _changed(event, NODES, Node)
        self._version = metadata.resource_version
        _replace(metadata.name, node, self._nodes, self._invalid)
