"""A real cluster behind the interface of the local world's store.

Reads come from watch caches: the first read of a kind lists it and starts to watch it. Writes are requests, and their
answers are in the cache when they return. So the local world's kubelets, timeline and checks work on both.
"""

from __future__ import annotations

import contextlib
import copy
import random
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from local.kubernetes import kinds
from local.kubernetes.errors import CONFLICT, ApiError
from local.kubernetes.objects import Change
from local.kubernetes.registry.object_storage import ObjectStorage
from local.kubernetes.registry.standard_storage import StandardStorage, to_json
from local.kubernetes.registry.store import Store
from local.kubernetes.registry.watch_cache import HISTORY_SIZE
from local.real.impersonation import impersonated
from shared.cluster import errors
from shared.cluster.resources import Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from local.kubernetes.apiserver.auth import User
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.deletion import Propagation
    from local.kubernetes.registry.standard_storage import PatchType
    from local.kubernetes.registry.watch_cache import WatchCache
    from shared.api.json_types import Json
    from shared.cluster.client import Client
    from shared.cluster.watch import Watch

_SECONDS_BETWEEN_WATCHES = 0.2
_WATCH_SECONDS = 300
_STRATEGIC = "application/strategic-merge-patch+json"


class RemoteStore(Store):
    """The objects of a real cluster. ``client`` is an administrator's; the store doesn't close it."""

    def __init__(self, client: Client, *, now: Callable[[], datetime]) -> None:
        # Not Store's: a real cluster has its namespaces and priority classes, and its own budgets.
        StandardStorage.__init__(self, now, HISTORY_SIZE, random.Random())  # noqa: S311 - never drawn from
        # Versions decide between writers, and one must not wait for another's request.
        self.update_lock = contextlib.nullcontext()
        self._client = client
        self._user: User | None = None
        self._root = self
        self._watchers: dict[str, _Watcher] = {}

    def close(self) -> None:
        """End all watches."""
        with self.lock:
            watchers = list(self._watchers.values())
        for watcher in watchers:
            watcher.stop()
        for watcher in watchers:
            watcher.join()

    def as_user(self, user: User) -> RemoteStore:
        """The same store, whose writes are made as that user."""
        store = copy.copy(self)
        store._user = user  # noqa: SLF001 - its own class
        return store

    # Writes

    def create(self, kind: Kind, obj: Mapping[str, Any], *, namespace: str = "", dry_run: bool = False) -> Obj:
        """Create the object in the namespace, by default its own. Returns it as stored.

        Raises:
            ApiError: the cluster refuses it.
        """
        body = {**to_json(obj), "apiVersion": kind.api_version, "kind": kind.kind}
        namespace = namespace or body["metadata"].get("namespace", "")
        path = resource(kind).path(namespace=namespace if kind.namespaced else "")
        return self._take(kind, self._send("POST", path, body, dry_run=dry_run), dry_run=dry_run)

    def replace(self, kind: Kind, obj: Mapping[str, Any], *, subresource: str = "", dry_run: bool = False) -> Obj:
        """Replace the object of that name; ``subresource`` is "", "status" or "scale".

        Raises:
            ApiError: the cluster refuses it.
        """
        body = to_json(obj)
        path = _path(kind, body["metadata"]["name"], body["metadata"].get("namespace", ""), subresource)
        return self._take(kind, self._send("PUT", path, body, dry_run=dry_run), dry_run=dry_run or bool(subresource))

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Json,
        *,
        namespace: str = "",
        subresource: str = "",
        patch_type: PatchType = "merge",
        field_manager: str = "",
        force: bool = False,
        dry_run: bool = False,
    ) -> Obj:
        """Patch the object.

        Raises:
            ApiError: the cluster refuses it.
        """
        content_type = {
            "merge": "application/merge-patch+json",
            "json": "application/json-patch+json",
            "strategic": _STRATEGIC,
            "apply": "application/apply-patch+yaml",
        }[patch_type]
        query = [("fieldManager", field_manager)] if field_manager else []
        query += [("force", "true")] if force else []
        path = _path(kind, name, namespace, subresource)
        answer = self._send("PATCH", path, to_json(patch), query=query, content_type=content_type, dry_run=dry_run)
        return self._take(kind, answer, dry_run=dry_run or subresource == "scale")

    def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str = "",
        grace_period_seconds: int | None = None,
        preconditions: Mapping[str, str] | None = None,
        propagation: Propagation | None = None,
        dry_run: bool = False,
    ) -> Obj | None:
        """Delete the object. Returns None: whether it lingers is seen by its watch.

        Raises:
            ApiError: the cluster refuses it.
        """
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        if preconditions:
            options["preconditions"] = dict(preconditions)
        if propagation:
            options["propagationPolicy"] = propagation
        self._send("DELETE", _path(kind, name, namespace), options, dry_run=dry_run)
        return None

    def write(self, kind: Kind, new: Obj, old: Obj) -> Obj:
        """Patch what differs, if the object is still as ``old``.

        Raises:
            ApiError: 409 if the object has changed; the cache then has its present state.
        """
        change = merge_patch(old, new)
        status = change.pop("status", None) if kind.has_status else None
        stored = old
        try:
            if change:
                stored = self._patch_version(kind, stored, change, "")
            if status is not None:
                stored = self._patch_version(kind, stored, {"status": status}, "status")
        except ApiError as error:
            if error.status == CONFLICT:
                self._refresh(kind, old)
            raise
        return stored

    def evict(self, namespace: str, name: str, *, options: Mapping[str, Any] | None = None) -> None:
        """Evict the pod by the eviction subresource.

        Raises:
            ApiError: the cluster refuses it; 429 if a PodDisruptionBudget doesn't allow it.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": dict(options or {}),
        }
        self._send("POST", _path(kinds.PODS, name, namespace, "eviction"), body)

    def bind(self, namespace: str, name: str, node: str) -> Obj:
        """Bind the pod to the node. Returns the pod as it was: the watch sees the binding.

        Raises:
            ApiError: the cluster refuses it.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self._send("POST", _path(kinds.PODS, name, namespace, "binding"), body)
        return self.get(kinds.PODS, name, namespace=namespace)

    def collect_garbage(self) -> bool:
        """False: the cluster's own garbage collector does it."""
        return False

    def _patch_version(self, kind: Kind, old: Obj, change: Obj, subresource: str) -> Obj:
        meta = old["metadata"]
        own = {**change.get("metadata", {}), "resourceVersion": meta["resourceVersion"], "uid": meta["uid"]}
        body = {**change, "metadata": own}
        return self.patch(kind, meta["name"], body, namespace=meta.get("namespace", ""), subresource=subresource)

    def _refresh(self, kind: Kind, obj: Obj) -> None:
        meta = obj["metadata"]
        with contextlib.suppress(ApiError):  # deleted since: its watch will say so
            self._take(kind, self._send("GET", _path(kind, meta["name"], meta.get("namespace", "")), None))

    def _send(
        self,
        method: str,
        path: str,
        body: Json,
        *,
        query: list[tuple[str, str]] | None = None,
        content_type: str = "application/json",
        dry_run: bool = False,
    ) -> Obj:
        query = [*(query or []), *([("dryRun", "All")] if dry_run else [])]
        try:
            with impersonated(self._user):
                # The client's public methods are those that functions need; the local world needs all.
                raw = self._client._request(method, path, body=body, query=query, content_type=content_type)  # noqa: SLF001
        except errors.ApiError as error:
            raise ApiError(error.status, error.reason, error.message) from error
        answer: Obj = msgspec.json.decode(raw)
        return answer

    # The caches

    def _take(self, kind: Kind, obj: Obj, *, dry_run: bool = False) -> Obj:
        """Take the answer to a write into the cache, if its kind is watched and the watch isn't beyond it."""
        root = self._root
        watcher = root._watchers.get(kind.resource)  # noqa: SLF001 - its own class
        if watcher is not None and not dry_run:
            with root.lock:
                if version_of(obj) > watcher.version:
                    root._observe(kind, "MODIFIED", obj)  # noqa: SLF001 - its own class
        return obj

    def _cache(self, kind: Kind) -> WatchCache:
        cache = super()._cache(kind)
        if kind.resource not in self._watchers:
            with self.lock:
                if kind.resource not in self._watchers:
                    self._watchers[kind.resource] = _Watcher(self._root, self._client, kind)
                    self._watchers[kind.resource].begin()
        return cache

    def _observe(self, kind: Kind, type_: str, obj: Obj) -> None:
        """Record a state of an object unless a later one is known. The lock must be held."""
        obj = {**obj, "apiVersion": kind.api_version, "kind": kind.kind}
        cache = ObjectStorage._cache(self, kind)  # noqa: SLF001 - its own class
        key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        known, version = cache.get(key), version_of(obj)
        if known is not None and version_of(known) >= version:
            return
        change_type: Literal["ADDED", "MODIFIED", "DELETED"] = "MODIFIED" if known is not None else "ADDED"
        if type_ == "DELETED":
            if known is None:
                return
            change_type = "DELETED"
        self.version = max(self.version, version)
        change = Change(change_type, obj, version, kind, known)
        cache.record(key, change)
        for callback in tuple(self._subscribers):
            callback(change)
        if kind.resource == kinds.CUSTOM_RESOURCE_DEFINITIONS.resource:
            self._update_kinds(change)

    def _relist(self, kind: Kind, objects: list[Obj], version: int) -> None:
        """Take in a complete list. The lock must be held."""
        listed = {(obj["metadata"].get("namespace", ""), obj["metadata"]["name"]) for obj in objects}
        for known in ObjectStorage._cache(self, kind).all():  # noqa: SLF001 - its own class
            if (known["metadata"].get("namespace", ""), known["metadata"]["name"]) not in listed:
                metadata = {**known["metadata"], "resourceVersion": str(version)}
                self._observe(kind, "DELETED", {**known, "metadata": metadata})
        for obj in objects:
            self._observe(kind, "MODIFIED", obj)


class _Watcher(threading.Thread):
    """Keeps one kind's cache up to date."""

    def __init__(self, store: RemoteStore, client: Client, kind: Kind) -> None:
        super().__init__(name=f"mirror {kind.plural}", daemon=True)
        self._store = store
        self._client = client
        self._kind = kind
        self._path = resource(kind).path()
        self._watch: Watch | None = None
        self._stopping = threading.Event()
        self.version = 0
        """The resourceVersion up to which the cache is known to be complete."""

    def begin(self) -> None:
        """List, and start to watch.

        Raises:
            ApiError: the cluster doesn't serve the kind.
        """
        try:
            self._list()
        except errors.ApiError as error:
            raise ApiError(error.status, error.reason, error.message) from error
        self.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        watch = self._watch
        if watch is not None:
            watch.close()

    def run(self) -> None:
        """Watch until stopped."""
        while not self._stopping.is_set():
            try:
                for kind, raw in self._events():
                    self._handle(kind, raw)
            except errors.ExpiredError:
                with contextlib.suppress(errors.ApiError):
                    self._list()
            except errors.ApiError:
                time.sleep(_SECONDS_BETWEEN_WATCHES)

    def _list(self) -> None:
        objects: list[Obj] = []
        version = 0
        for page in self._client.list_pages(self._path):
            listed = msgspec.json.decode(page)
            objects += listed.get("items") or []
            version = version_of(listed)
        with self._store.lock:
            self._store._relist(self._kind, objects, version)  # noqa: SLF001 - its own module
            self.version = version

    def _events(self) -> Iterator[tuple[str, bytes]]:
        self._watch = self._client.watch(self._path, resource_version=str(self.version), timeout=_WATCH_SECONDS)
        try:
            if not self._stopping.is_set():
                for event in self._watch:
                    yield event.type, bytes(event.object)
        finally:
            self._watch.close()
            self._watch = None

    def _handle(self, type_: str, raw: bytes) -> None:
        obj: Obj = msgspec.json.decode(raw)
        with self._store.lock:
            if type_ != "BOOKMARK":
                self._store._observe(self._kind, type_, obj)  # noqa: SLF001 - its own module
            self.version = max(self.version, version_of(obj))


def resource(kind: Kind) -> Resource:
    """The kind as functions name it, for its paths."""
    return Resource(
        group=kind.group, version=kind.version, plural=kind.plural, kind=kind.kind, namespaced=kind.namespaced
    )


def version_of(obj: Obj) -> int:
    """The resourceVersion; since Kubernetes 1.35 a client may compare those of a kind as numbers."""
    return int(obj["metadata"].get("resourceVersion") or 0)


def merge_patch(old: Obj, new: Obj) -> Obj:
    """The JSON merge patch (RFC 7386) that makes ``new`` of ``old``."""
    patch: Obj = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            if change := merge_patch(before, value):
                patch[name] = change
        elif name not in old or before != value:
            patch[name] = value
    return patch


def _path(kind: Kind, name: str, namespace: str, subresource: str = "") -> str:
    return resource(kind).path(name, namespace=namespace if kind.namespaced else "", subresource=subresource)
