"""The pods of a warm process: listed once, then caught up by a watch from the last version.

Pods are nearly all of a large cluster's bytes, so only they are kept; every other kind is listed anew each time.

A watch has no end at which one is up to date, so two things decide it. An event of a version at or after that of a list
made just before proves it. Where none comes (often nothing changed), the stream has to be silent for a moment, and the
pods without a node, which that list reads consistently, have to be the same here: a pod whose binding, creation or
deletion is still on its way shows there. What can lag unseen is a change to a pod that is bound, by as much as the API
server's own watch lags; whoever acts on such a pod lists it again (``list_pods_on_node``). In any doubt, and when the
version has expired, everything is listed again.
"""

from __future__ import annotations

import contextvars
import gc
import queue
import threading
from typing import TYPE_CHECKING

import msgspec

from shared.api.kubernetes import Pod
from shared.cluster import listing
from shared.cluster.errors import ApiError
from shared.cluster.listing import ObjectList
from shared.cluster.resources import PODS
from shared.snapshot import InvalidObject

if TYPE_CHECKING:
    from shared.cluster.client import Client
    from shared.cluster.watch import Watch, WatchEvent

UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector of the pods that take room, or will."""
PENDING = f"spec.nodeName=,{UNFINISHED}"
WORTH = 1_000
"""Pods from which on catching up is quicker than listing: two requests and a silence against two pages and more."""
SILENCE_SECONDS = 0.05
PATIENCE = 20
"""Silences that the pods without a node may differ for, before everything is listed again: a second."""


class _Behind(Exception):  # noqa: N818 (an outcome; never leaves this module)
    """The watch doesn't lead to what a list shows."""


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    name: str = ""
    namespace: str = ""


class _Versioned(msgspec.Struct, frozen=True):
    metadata: _Version = _Version()


class PodCache:
    """The unfinished pods of a cluster. Not thread-safe."""

    def __init__(self, client: Client, *, worth: int = WORTH, patience: int = PATIENCE) -> None:
        self._client = client
        self._patience = patience
        self._worth = worth
        self._version = ""
        self._pods: dict[str, Pod] = {}
        self._unbound: dict[str, str] = {}
        """The versions of those that have no node."""
        self._invalid: dict[str, InvalidObject] = {}
        self._is_frozen = False
        self.lists = 0
        """How many times everything was listed."""

    def read(self) -> ObjectList[Pod]:
        """The pods as they are now.

        Raises:
            ApiError: the API server can't be read.
        """
        if self._version and len(self._pods) >= self._worth:
            try:
                self._catch_up()
            except (ApiError, _Behind):
                # expired, broken, not permitted: a list is always right, and says so if it isn't possible either
                self._list()
        else:
            self._list()
        return ObjectList(
            objects=tuple(self._pods.values()), invalid=tuple(self._invalid.values()), version=self._version
        )

    def _list(self) -> None:
        if self._is_frozen:
            gc.collect()  # what is frozen is not looked at; what was made since must not be frozen as garbage
        with listing.gc_paused():
            listed = listing.list_objects(self._client, PODS, Pod, fields=UNFINISHED)
            self._pods = {pod.key: pod for pod in listed.objects}
            self._unbound = {key: p.metadata.resource_version for key, p in self._pods.items() if not p.spec.node_name}
            self._invalid = {f"{bad.ref.namespace}/{bad.ref.name}": bad for bad in listed.invalid}
            if len(self._pods) >= max(self._worth, 1):
                # Pods hold no cycles, so counting references frees them. The collector would walk 20,000 of them for a
                # quarter of a second in the midst of the first catching up, and again whenever it looks at everything.
                gc.freeze()
                self._is_frozen = True
        self._version = listed.version
        self.lists += 1

    def _catch_up(self) -> None:
        pending = listing.list_objects(self._client, PODS, Pod, fields=PENDING)
        target = {pod.key: pod.metadata.resource_version for pod in pending.objects}
        watch = self._client.watch(PODS.path(), resource_version=self._version, fields=UNFINISHED)
        stream = _Stream(watch)
        try:
            silences = 0
            while silences < self._patience:
                event = stream.next(SILENCE_SECONDS)
                if event is None:
                    silences += 1
                    if self._unbound == target:
                        return
                else:
                    self._take(event)
                    if _at_least(self._version, pending.version):
                        return
        finally:
            stream.close()
        raise _Behind

    def _take(self, event: WatchEvent) -> None:
        raw = bytes(event.object)
        metadata = msgspec.json.decode(raw, type=_Versioned).metadata
        self._version = metadata.resource_version
        if event.type == "BOOKMARK":
            return
        key = f"{metadata.namespace or 'default'}/{metadata.name}"
        self._pods.pop(key, None)
        self._unbound.pop(key, None)
        self._invalid.pop(key, None)
        if event.type == "DELETED":
            return
        found = listing.decode(raw, PODS, Pod)
        if isinstance(found, InvalidObject):
            self._invalid[key] = found
        else:
            self._pods[key] = found
            if not found.spec.node_name:
                self._unbound[key] = metadata.resource_version


class _Stream:
    """A watch read in a thread, so that its silence can be heard."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._events: queue.SimpleQueue[WatchEvent | ApiError | None] = queue.SimpleQueue()
        # in this invocation's name: the token is made for its host and by its clock
        work = contextvars.copy_context().run
        self._thread = threading.Thread(target=work, args=(self._read,), name="catch up pods", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for event in self._watch:
                self._events.put(event)
        except ApiError as error:
            self._events.put(error)
        else:
            self._events.put(None)

    def next(self, seconds: float) -> WatchEvent | None:
        """The next event, or None when there was none for so long.

        Raises:
            ApiError: what the watch ended with.
            _Behind: the watch ended.
        """
        try:
            event = self._events.get(timeout=seconds)
        except queue.Empty:
            return None
        if event is None:
            raise _Behind
        if isinstance(event, ApiError):
            raise event
        return event

    def close(self) -> None:
        """End the watch and the thread."""
        self._watch.close()
        self._thread.join()


def _at_least(version: str, target: str) -> bool:
    """Whether a version is the other or later. Kubernetes' versions are numbers that grow (API conventions, v1.35)."""
    return version.isdigit() and target.isdigit() and int(version) >= int(target)
