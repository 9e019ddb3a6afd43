"""A thin client of the Kubernetes API: paths and bytes in, bytes or typed errors out.

Requests use the official client's transport. Its typed models and its ApiClient, which imports them, are not used:
they take 50 times as long as decoding only the needed fields (reference: 10,000 pods in 8 s against 0.11 s). Every call
has time-outs, retries with jitter where a repeat is safe, and typed errors.
"""

from __future__ import annotations

import contextlib
import random
import ssl
from collections.abc import Mapping
from datetime import timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlencode

import msgspec
import urllib3
from kubernetes.client.exceptions import ApiException
from kubernetes.client.rest import RESTClientObject
from urllib3.util import ssl_

from shared.api.meta import ApiStruct, to_json
from shared.base import runtime
from shared.base.struct import WireStruct
from shared.cluster import errors
from shared.cluster.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kubernetes.client.configuration import Configuration

    from shared.api.json_types import Json

PatchKind = Literal["merge", "json", "apply"]

CONNECT_SECONDS = 3.0
READ_SECONDS = 15.0
"""For each request, of which a list has one a page; below the timeout of every function."""
ATTEMPTS = 5
PAGE_SIZE = 500
"""Objects of a list's first page."""
MAX_PAGE_SIZE = 2_000
"""Each further page has twice as many, up to this: 450,000 pods take 900 requests of 500, and 227 so. A page of pods is
then some 10 MB; the API server itself reads up to 10,000 objects at once (``maxLimit`` in
apiserver/pkg/storage/etcd3/store.go)."""
_GATEWAY_TIMEOUT = 504
_EVICTION_DENIED = frozenset({429, 500, _GATEWAY_TIMEOUT})
"""The statuses with which the eviction API denies an eviction, or an admission webhook lets it wait for too long."""
_INITIAL_BACKOFF = 0.1
_MAX_BACKOFF = 5.0
_WATCH_SECONDS = 300
_WATCH_READ_MARGIN = 15.0
_SUCCESS = range(200, 300)
_JSON = "application/json"
_PATCH_TYPES: dict[PatchKind, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
_IDEMPOTENT = frozenset({"GET", "PATCH", "DELETE"})
_CLOCK_TOLERANCE = timedelta(minutes=1)
_random = random.SystemRandom()


class _ListMeta(WireStruct):
    continue_: str = msgspec.field(default="", name="continue")


class _ListHead(WireStruct):
    metadata: _ListMeta = _ListMeta()


_list_head_decoder = msgspec.json.Decoder(_ListHead)


class Client:
    """Calls to one cluster.

    ``sleep`` waits between attempts (default: the current runtime's), ``jitter`` returns numbers in [0, 1), and
    ``attempts`` is the number of attempts in total. Paths come from :class:`shared.cluster.resources.Resource`.
    Thread-safe.
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
        configuration.retries = False  # this class knows which requests may be repeated
        self._configuration = configuration
        self._transport = _transport(configuration)
        self._user_agent = user_agent
        self._sleep = sleep
        self._jitter = jitter
        self._attempts = attempts
        self._ahead = timedelta()

    @property
    def server_clock_ahead(self) -> timedelta:
        """How far the API server's clock is ahead of this process's, by its last answer; a minute's difference is none.

        The times that the API server writes, such as an object's creation, are by that clock.
        """
        return self._ahead if abs(self._ahead) > _CLOCK_TOLERANCE else timedelta()

    def get(self, path: str) -> bytes:
        """An object's JSON.

        Raises:
            NotFoundError: there is none.
            ApiError: any other error; all methods here raise it.
        """
        return self._request("GET", path)

    def list_pages(self, path: str, *, fields: str = "", labels: str = "", limit: int = PAGE_SIZE) -> Iterator[bytes]:
        """The pages of a list, as raw JSON, all of one resourceVersion; ``limit`` is the size of the first.

        The next one is read while the caller works on one, so the iterator raises, too.

        Raises:
            ExpiredError: the list took too long and its version is compacted: start again.
        """
        selectors = [(name, text) for name, text in (("fieldSelector", fields), ("labelSelector", labels)) if text]
        sizes = accumulate(repeat(2), lambda size, by: max(size, min(size * by, MAX_PAGE_SIZE)), initial=limit)

        def page(*token: tuple[str, str]) -> bytes:
            return self._request("GET", path, query=[*selectors, ("limit", str(next(sizes))), *token])

        def following(read: bytes) -> Callable[[], bytes] | None:
            token = _list_head_decoder.decode(read).metadata.continue_
            return partial(page, ("continue", token)) if token else None

        return runtime.one_ahead(page(), following)

    def create(self, path: str, obj: ApiStruct | Mapping[str, Any]) -> bytes:
        """Create an object in the collection at ``path``; returns the stored object.

        Raises:
            AlreadyExistsError: an object of that name is there.
            InvalidError: the API server rejects the object.
        """
        return self._request("POST", path, body=json_body(obj))

    def patch(
        self,
        path: str,
        patch: ApiStruct | Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        kind: PatchKind = "merge",
        field_manager: str = "",
        force: bool = False,
    ) -> bytes:
        """Patch an object; returns the stored object.

        ``kind`` is a JSON merge patch (RFC 7386), a JSON patch (RFC 6902, a list) or a server-side apply (needs
        ``field_manager``; ``force`` takes fields over from other managers).

        Raises:
            ConflictError: the patch names a ``metadata.resourceVersion`` that isn't the current one.
            InvalidError: the result isn't valid, or a JSON patch's ``test`` fails.
        """
        query = [("fieldManager", field_manager)] if field_manager else []
        if force:
            query.append(("force", "true"))
        body = json_body(patch) if isinstance(patch, ApiStruct | Mapping) else [dict(step) for step in patch]
        return self._request("PATCH", path, body=body, query=query, content_type=_PATCH_TYPES[kind])

    def delete(
        self,
        path: str,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_seconds: int | None = None,
    ) -> bytes:
        """Delete an object; with ``uid`` or ``resource_version`` only if the object still has them.

        Raises:
            NotFoundError: it is gone.
            ConflictError: the object has another uid or resourceVersion.
        """
        preconditions = {name: value for name, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            options["preconditions"] = preconditions
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        return self._request("DELETE", path, body=options)

    def evict(self, namespace: str, name: str, *, uid: str = "", grace_period_seconds: int | None = None) -> None:
        """Evict a pod by the eviction API, which honours PodDisruptionBudgets.

        Raises:
            TooManyRequestsError: a budget denies the eviction (``by_budget``), or the server is throttling; never
                retried here.
            NotFoundError: the pod is gone.
            ConflictError: another pod has the name now.
            ApiError: this pod can't be evicted: two budgets cover it (500), or an admission webhook denies it or
                doesn't answer in time (504). Not retried here either. The ``status`` of an
                :class:`UnavailableError` is 0 if no server answered.
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
        self._request(
            "POST",
            f"/api/v1/namespaces/{namespace}/pods/{name}/eviction",
            body=body,
            idempotent=True,
            never_retry=_EVICTION_DENIED,
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
        response = self._send_with_retries(
            "GET", path, query=query, read_seconds=timeout + _WATCH_READ_MARGIN, stream=True
        )
        assert not isinstance(response, bytes)
        return Watch(response)

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def _request(
        self,
        method: str,
        path: str,
        *,
        body: Json = None,
        query: Sequence[tuple[str, str]] = (),
        content_type: str = _JSON,
        idempotent: bool | None = None,
        never_retry: frozenset[int] = frozenset(),
    ) -> bytes:
        response = self._send_with_retries(
            method,
            path,
            body=body,
            query=query,
            content_type=content_type,
            idempotent=idempotent,
            never_retry=never_retry,
        )
        assert isinstance(response, bytes)
        return response

    def _send_with_retries(
        self,
        method: str,
        path: str,
        *,
        body: Json = None,
        query: Sequence[tuple[str, str]] = (),
        content_type: str = _JSON,
        idempotent: bool | None = None,
        never_retry: frozenset[int] = frozenset(),
        read_seconds: float = READ_SECONDS,
        stream: bool = False,
    ) -> bytes | urllib3.BaseHTTPResponse:
        """Send, and retry where a repeat is safe: always for requests that were throttled or never sent.

        Errors with a status in ``never_retry`` are raised at once, and those after which the server asks for a longer
        wait than an invocation should take.
        """
        may_repeat = method in _IDEMPOTENT if idempotent is None else idempotent
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._send(method, path, body, query, content_type, read_seconds, stream=stream)
            except (errors.TooManyRequestsError, errors.UnavailableError) as error:
                retryable = _is_retryable(error, may_repeat=may_repeat, never_retry=never_retry)
                retry_after = error.retry_after or 0.0
                if not retryable or attempt >= self._attempts or retry_after > _MAX_BACKOFF:
                    raise
            backoff = min(_INITIAL_BACKOFF * 2**attempt, _MAX_BACKOFF) * self._jitter()
            (self._sleep or runtime.sleep)(max(retry_after, backoff))

    def _send(
        self,
        method: str,
        path: str,
        body: Json,
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
                stream_response: urllib3.BaseHTTPResponse = response.response
                return stream_response
            data: bytes = response.read()
            self._compare_clocks(response.headers.get("Date", ""))
        except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError) as error:
            raise _NeverSentError(0, type(error).__name__, f"the cluster's API can't be reached: {error}") from error
        except urllib3.exceptions.ReadTimeoutError as error:
            message = f"{method} {path} was not answered within {read_seconds:g} s"
            raise errors.UnavailableError(_GATEWAY_TIMEOUT, "ReadTimeout", message) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise errors.UnavailableError(0, type(error).__name__, f"{method} {path} broke off: {error}") from error
        except ApiException as error:
            # The official client raises this for a failed TLS handshake.
            raise errors.UnavailableError(0, "TLS", str(error.reason)) from error
        if response.status not in _SUCCESS:
            raise errors.from_response(response.status, data, retry_after=response.headers.get("Retry-After"))
        return data

    def _compare_clocks(self, date: str) -> None:
        with contextlib.suppress(ValueError):
            self._ahead = parsedate_to_datetime(date) - runtime.now()


def _transport(configuration: Configuration) -> RESTClientObject:
    """The official client's transport, which also trusts the authorities of Kubernetes 1.16 and older.

    These lack extensions that Python 3.13 demands (VERIFY_X509_STRICT), and a cluster keeps its authority for good.
    """
    configuration.connection_pool_maxsize = runtime.KUBERNETES_THREADS
    transport = RESTClientObject(configuration)
    pools = transport.pool_manager.connection_pool_kw
    if pools["ca_certs"] or pools["ca_cert_data"]:
        context = ssl_.create_urllib3_context(cert_reqs=pools["cert_reqs"])
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        pools["ssl_context"] = context
    return transport


class _NeverSentError(errors.UnavailableError):
    """No connection was made, so nothing was changed: any request may be repeated."""


def _is_retryable(error: errors.ApiError, *, may_repeat: bool, never_retry: frozenset[int]) -> bool:
    if isinstance(error, _NeverSentError):
        return True
    if error.status in never_retry:
        return False
    return may_repeat or isinstance(error, errors.TooManyRequestsError)


def json_body(obj: ApiStruct | Mapping[str, Any]) -> dict[str, Any]:
    """The JSON object to send, with the ``apiVersion`` and ``kind`` that structs omit as defaults."""
    value: dict[str, Any] = to_json(obj)
    kind, api_version = getattr(obj, "kind", None), getattr(obj, "api_version", None)
    if isinstance(obj, ApiStruct) and isinstance(kind, str) and isinstance(api_version, str):
        value = {"apiVersion": api_version, "kind": kind, **value}
    return value
