"""The verbs that read: get, list and watch."""

from __future__ import annotations

import threading
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import msgspec

from local.kubernetes import errors
from local.kubernetes.apiserver import request_parameters
from local.kubernetes.apiserver.http import Response
from local.kubernetes.apiserver.negotiation import list_response, object_response, represent, representation_of
from local.kubernetes.apiserver.request_info import is_true
from local.kubernetes.apiserver.watch import DEFAULT_TIMEOUT_SECONDS, Watch, WatchOptions
from local.kubernetes.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from local.kubernetes.apiserver.http import Request
    from local.kubernetes.apiserver.request_info import RequestInfo
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Key, Obj
    from local.kubernetes.registry.store import Store
    from shared.api.json_types import Json

_GONE = 410


class ReadHandlers:
    """Answers reads from a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._watches: set[Watch] = set()

    def stop_watches(self) -> None:
        """End every running watch; clients start them again from the last version they saw."""
        with self._lock:
            for watch in self._watches:
                watch.stop()

    def get(self, request: Request, info: RequestInfo, kind: Kind) -> Response:
        """One object."""
        obj = self._store.get(kind, info.name, namespace=info.namespace or "")
        return object_response(self._store, request, kind, obj)

    def list(self, request: Request, info: RequestInfo, kind: Kind) -> Response:
        """The objects of a kind, or one page of them."""
        query = request.query
        version = request_parameters.count(request, "resourceVersion")
        limit = request_parameters.count(request, "limit") or 0
        token = query.get("continue", "")
        with self._store.lock:
            self._check_not_ahead(version)
            list_version = self._store.version
            last: Key | None = None
            if token:
                list_version, last = request_parameters.parse_continue_token(token)
            elif version and query.get("resourceVersionMatch") == "Exact":
                list_version = version
            objects = self._store.list(
                kind,
                namespace=info.namespace,
                labels=query.get("labelSelector", ""),
                fields=query.get("fieldSelector", ""),
                version=list_version,
            )
        if last is not None:
            objects = objects[bisect_right(objects, last, key=_key) :]
        metadata: dict[str, Any] = {"resourceVersion": str(list_version)}
        if limit and len(objects) >= limit and (version != 0 or token):
            metadata |= self._page(request, info, kind, objects, limit, list_version)
            objects = objects[:limit]
        return list_response(self._store, kind, objects, metadata, representation_of(request))

    def _page(
        self, request: Request, info: RequestInfo, kind: Kind, objects: Sequence[Obj], limit: int, version: int
    ) -> dict[str, Any]:
        """The metadata of a full page, with a token if there are more objects.

        A real server looks no further than its page, so objects that aren't selected count.
        """
        last, remaining = _key(objects[limit - 1]), len(objects) - limit
        is_selected = bool(request.query.get("labelSelector") or request.query.get("fieldSelector"))
        if is_selected:
            every = self._store.list(kind, namespace=info.namespace, version=version)
            remaining = int(_key(every[-1]) > last)
        if not remaining:
            return {}
        token = {"continue": request_parameters.continue_token(version, last)}
        return token if is_selected else {**token, "remainingItemCount": remaining}

    def watch(self, request: Request, info: RequestInfo, kind: Kind) -> Response:
        """A stream of changes; a version that is too old is answered with an ERROR event, as on a real server."""
        version = request_parameters.count(request, "resourceVersion")
        self._check_not_ahead(version)
        try:
            watch = Watch(self._store, self._watch_options(request, info, kind, version))
        except ApiError as error:
            if error.status != _GONE:
                raise
            event = {"type": "ERROR", "object": error.as_json()}
            return Response(stream=iter([msgspec.json.encode(event) + b"\n"]))
        with self._lock:
            self._watches.add(watch)
        return Response(stream=self._stream(watch))

    def _watch_options(self, request: Request, info: RequestInfo, kind: Kind, version: int | None) -> WatchOptions:
        query = request.query
        fields = query.get("fieldSelector", "")
        if info.name:
            fields = ",".join(filter(None, (fields, f"metadata.name={info.name}")))
        send_initial_events = is_true(query.get("sendInitialEvents"))
        representation = representation_of(request)
        first = True

        def represent_event(obj: Obj) -> Json:
            nonlocal first
            represented = represent(self._store, kind, obj, representation, with_columns=first)
            first = False
            return represented

        return WatchOptions(
            kind=kind,
            namespace=info.namespace,
            labels=query.get("labelSelector", ""),
            fields=fields,
            since=version if version and not send_initial_events else None,
            timeout_seconds=float(request_parameters.count(request, "timeoutSeconds") or DEFAULT_TIMEOUT_SECONDS),
            bookmarks=is_true(query.get("allowWatchBookmarks")),
            initial_events_end=send_initial_events,
            represent=represent_event,
        )

    def _check_not_ahead(self, version: int | None) -> None:
        if version is not None and version > self._store.version:
            raise errors.version_too_large(version, self._store.version)

    def _stream(self, watch: Watch) -> Iterator[bytes | None]:
        try:
            yield from watch.lines()
        finally:
            with self._lock:
                self._watches.discard(watch)


def _key(obj: Obj) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
