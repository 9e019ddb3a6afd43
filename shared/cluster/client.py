"""A thin client of the Kubernetes API: paths and bytes in, bytes or our own errors out.

The official client's transport carries the requests; its typed models stay out, because they cost 50 times what
decoding into the few fields we use costs (reference: 10,000 pods in 8 s against 0.11 s), and so does its ApiClient,
which imports what serves them. What every call needs is here: time-outs, retries with jitter where a repeat is
harmless, errors as types.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlencode

import msgspec
import urllib3
from kubernetes.client.exceptions import ApiException
from kubernetes.client.rest import RESTClientObject

from shared import runtime
from shared.api.meta import Struct, to_json
from shared.cluster import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kubernetes.client.configuration import Configuration

PatchKind = Literal["merge", "json", "apply"]

CONNECT_SECONDS = 3.0
READ_SECONDS = 30.0
ATTEMPTS = 5
PAGE = 500
_JUDGED = frozenset({429, 500})
"""What the eviction API answers when it has looked at the pod and doesn't let it go."""
_FIRST_WAIT = 0.1
_LONGEST_WAIT = 5.0
_WATCH_SECONDS = 300
_WATCH_GRACE = 15.0
_SUCCESS = range(200, 300)
_JSON = "application/json"
_PATCH_TYPES: dict[PatchKind, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
_REPEATABLE = frozenset({"GET", "PATCH", "DELETE"})
_random = random.SystemRandom()


class _ListMeta(msgspec.Struct, frozen=True):
    continue_: str = msgspec.field(default="", name="continue")


class _ListHead(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()


class WatchEvent(msgspec.Struct, frozen=True):
    """One change: ``type`` is ADDED, MODIFIED, DELETED or BOOKMARK; ``object`` is the raw JSON."""

    type: str
    object: msgspec.Raw


_head = msgspec.json.Decoder(_ListHead)
_event = msgspec.json.Decoder(WatchEvent)


class Watch:
    """An open watch: iterate over its events; :meth:`close` ends it from any thread."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response
        self._closed = False

    def __iter__(self) -> Iterator[WatchEvent]:
        """Events until the server's time-out or :meth:`close`.

        Raises:
            ExpiredError: the resourceVersion is too old (HTTP 410): list again.
            UnavailableError: the connection broke: watch again from the last resourceVersion.
            ApiError: any other ERROR event.
        """
        rest = b""
        try:
            for chunk in self._response.stream(None, decode_content=False):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line:
                        yield _decoded(line)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            # urllib3 raises ValueError on a response that close() shut under it
            if not self._closed:
                raise errors.UnavailableError(0, type(error).__name__, f"the watch broke: {error}") from error
        finally:
            self._response.close()

    def close(self) -> None:
        """End the watch; an iteration that waits in another thread returns."""
        self._closed = True
        try:
            self._response.shutdown()
        except (ValueError, OSError, RuntimeError):
            # already over
            self._response.close()


def _decoded(line: bytes) -> WatchEvent:
    try:
        event = _event.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.UnavailableError(0, "Garbled", f"the watch sent what is no event: {error}") from error
    if event.type == "ERROR":
        raise errors.from_watch_event(bytes(event.object))
    return event


class Client:
    """Calls to one cluster.

    ``sleep`` waits between tries (default: the current host's), ``jitter`` gives numbers in [0, 1), ``attempts`` counts
    tries in all. Paths come from :class:`shared.cluster.resources.Resource`. Thread-safe.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        sleep: Callable[[float], None] | None = None,
        jitter: Callable[[], float] = _random.random,
        attempts: int = ATTEMPTS,
        user_agent: str = "tenon",
    ) -> None:
        configuration.retries = False  # ours know which verbs may be repeated
        self._configuration = configuration
        self._transport = RESTClientObject(configuration)
        self._user_agent = user_agent
        self._sleep = sleep
        self._jitter = jitter
        self._attempts = attempts

    def get(self, path: str) -> bytes:
        """An object's JSON.

        Raises:
            NotFoundError: there is none.
            ApiError: anything else; so do all methods here.
        """
        return self._call("GET", path)

    def list_pages(self, path: str, *, fields: str = "", labels: str = "", limit: int = PAGE) -> Iterator[bytes]:
        """The pages of a list, as raw JSON, all of one resourceVersion.

        Raises:
            ExpiredError: the list took too long and its version is compacted: start again.
        """
        query = [("limit", str(limit))] if limit else []
        if fields:
            query.append(("fieldSelector", fields))
        if labels:
            query.append(("labelSelector", labels))
        token = ""
        while True:
            page = self._call("GET", path, query=[*query, ("continue", token)] if token else query)
            yield page
            token = _head.decode(page).metadata.continue_
            if not token:
                return

    def create(self, path: str, obj: Struct | Mapping[str, Any]) -> bytes:
        """Create an object in the collection at ``path``; the answer is what was stored.

        Raises:
            AlreadyExistsError: an object of that name is there.
            InvalidError: the API server doesn't take it.
        """
        return self._call("POST", path, body=plain(obj))

    def patch(
        self,
        path: str,
        patch: Struct | Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        kind: PatchKind = "merge",
        field_manager: str = "",
        force: bool = False,
    ) -> bytes:
        """Change an object; the answer is what was stored.

        ``kind`` is a JSON merge patch (RFC 7386), a JSON patch (RFC 6902, a list) or a server-side apply (needs
        ``field_manager``; ``force`` takes fields over from other managers).

        Raises:
            ConflictError: the patch names a ``metadata.resourceVersion`` that isn't the current one.
            InvalidError: the result isn't valid, or a JSON patch's ``test`` fails.
        """
        query = [("fieldManager", field_manager)] if field_manager else []
        if force:
            query.append(("force", "true"))
        body = plain(patch) if isinstance(patch, Struct | Mapping) else [dict(step) for step in patch]
        return self._call("PATCH", path, body=body, query=query, content_type=_PATCH_TYPES[kind])

    def delete(
        self,
        path: str,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_seconds: int | None = None,
    ) -> bytes:
        """Ask for deletion; with ``uid`` or ``resource_version`` only if the object still has them.

        Raises:
            NotFoundError: it is gone.
            ConflictError: it isn't the object that was meant.
        """
        preconditions = {name: value for name, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            options["preconditions"] = preconditions
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        return self._call("DELETE", path, body=options)

    def evict(self, namespace: str, name: str, *, uid: str = "", grace_period_seconds: int | None = None) -> None:
        """Evict a pod by the eviction API, which honours PodDisruptionBudgets.

        Raises:
            TooManyRequestsError: a budget holds (``by_budget``), or the server is throttling; never retried here.
            NotFoundError: the pod is gone.
            ConflictError: another pod has taken the name.
            ApiError: this pod can't be evicted: two budgets cover it (500), or an admission webhook says no. Not
                retried here either. Of an :class:`UnavailableError`, ``status`` says whether the server answered.
        """
        options: dict[str, Any] = {}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        body: dict[str, Any] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        if options:
            body["deleteOptions"] = options
        self._call(
            "POST",
            f"/api/v1/namespaces/{namespace}/pods/{name}/eviction",
            body=body,
            repeatable=True,
            final=_JUDGED,
        )

    def watch(
        self,
        path: str,
        *,
        resource_version: str,
        fields: str = "",
        labels: str = "",
        timeout: int = _WATCH_SECONDS,
    ) -> Watch:
        """Changes after ``resource_version``, for at most ``timeout`` seconds, with bookmarks.

        Raises:
            ExpiredError: that version is too old; may also come while iterating.
        """
        query = [
            ("watch", "true"),
            ("resourceVersion", resource_version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(timeout)),
        ]
        if fields:
            query.append(("fieldSelector", fields))
        if labels:
            query.append(("labelSelector", labels))
        response = self._retried("GET", path, query=query, read_seconds=timeout + _WATCH_GRACE, stream=True)
        assert not isinstance(response, bytes)
        return Watch(response)

    def close(self) -> None:
        """Drop the connections."""
        self._transport.close()

    def _call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,  # noqa: ANN401 (plain JSON values)
        query: Sequence[tuple[str, str]] = (),
        content_type: str = _JSON,
        repeatable: bool | None = None,
        final: frozenset[int] = frozenset(),
    ) -> bytes:
        answer = self._retried(
            method,
            path,
            body=body,
            query=query,
            content_type=content_type,
            repeatable=repeatable,
            final=final,
        )
        assert isinstance(answer, bytes)
        return answer

    def _retried(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,  # noqa: ANN401 (plain JSON values)
        query: Sequence[tuple[str, str]] = (),
        content_type: str = _JSON,
        repeatable: bool | None = None,
        final: frozenset[int] = frozenset(),
        read_seconds: float = READ_SECONDS,
        stream: bool = False,
    ) -> bytes | urllib3.BaseHTTPResponse:
        """Send, and send again where a repeat is harmless: what was throttled or never sent always is.

        Answers of ``final`` status are told at once.
        """
        again = method in _REPEATABLE if repeatable is None else repeatable
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._send(method, path, body, query, content_type, read_seconds, stream=stream)
            except errors.TooManyRequestsError as error:
                if error.status in final or attempt >= self._attempts:
                    raise
                wait = error.retry_after or 0.0
            except _NeverSentError:
                if attempt >= self._attempts:
                    raise
                wait = 0.0
            except errors.UnavailableError as error:
                if not again or error.status in final or attempt >= self._attempts:
                    raise
                wait = error.retry_after or 0.0
            backoff = min(_FIRST_WAIT * 2**attempt, _LONGEST_WAIT) * self._jitter()
            (self._sleep or runtime.current().sleep)(max(min(wait, _LONGEST_WAIT), backoff))

    def _send(
        self,
        method: str,
        path: str,
        body: Any,  # noqa: ANN401 (plain JSON values)
        query: Sequence[tuple[str, str]],
        content_type: str,
        read_seconds: float,
        *,
        stream: bool,
    ) -> bytes | urllib3.BaseHTTPResponse:
        headers = {"Accept": _JSON, "User-Agent": self._user_agent}
        if body is not None:
            headers["Content-Type"] = content_type
        for auth in self._configuration.auth_settings().values():
            headers[auth["key"]] = auth["value"]
        url = f"{self._configuration.host}{path}{'?' if query else ''}{urlencode(query)}"
        try:
            response = self._transport.request(
                method, url, headers=headers, body=body, _request_timeout=(CONNECT_SECONDS, read_seconds)
            )
            if stream and response.status in _SUCCESS:
                opened: urllib3.BaseHTTPResponse = response.response
                return opened
            data: bytes = response.read()
        except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError) as error:
            raise _NeverSentError(0, type(error).__name__, f"the cluster's API can't be reached: {error}") from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise errors.UnavailableError(0, type(error).__name__, f"{method} {path} broke off: {error}") from error
        except ApiException as error:
            # the official client's word for a failed TLS handshake
            raise errors.UnavailableError(0, "TLS", str(error.reason)) from error
        if response.status not in _SUCCESS:
            raise errors.from_response(response.status, data, retry_after=response.headers.get("Retry-After"))
        return data


class _NeverSentError(errors.UnavailableError):
    """No connection was made, so nothing was done: any verb may be repeated."""


def plain(obj: Struct | Mapping[str, Any]) -> dict[str, Any]:
    """The JSON object to send: a struct's own ``apiVersion`` and ``kind``, which it omits as defaults, are put back."""
    value: dict[str, Any] = to_json(obj)
    kind, api_version = getattr(obj, "kind", None), getattr(obj, "api_version", None)
    if isinstance(obj, Struct) and isinstance(kind, str) and isinstance(api_version, str):
        value = {"apiVersion": api_version, "kind": kind, **value}
    return value
