"""The requests of this process to the Kubernetes API, with their statuses: what functions, relay and kubelets sent."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kubernetes.client.rest import RESTClientObject

from local.aws import backends
from local.aws.calls import CALLER
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_FORBIDDEN = 403


class SentBody(Struct):
    """The body of a request as it was sent, its content type, and the types that its client accepts."""

    content_type: str
    accept: str
    body: bytes


class SentRequest(Struct, kw_only=True):
    """A request and the status of its response. ``caller`` is a function, or "" for the relay and kubelets."""

    caller: str
    method: str
    path: str
    status: int


class RequestLog:
    """The requests while :meth:`recorded` is entered, oldest first.

    ``authorization`` may replace the headers of a request, for clusters that don't know the functions' tokens.
    ``with_bodies`` keeps each request's body, too.
    """

    def __init__(self, *, with_bodies: bool = False) -> None:
        self._with_bodies = with_bodies
        self._lock = threading.Lock()
        self.authorization: Callable[[Mapping[str, str]], Mapping[str, str]] | None = None
        self.requests: list[SentRequest] = []
        self.bodies: dict[str, SentBody] = {}
        """The bodies by the audit ID that the API server gave their request."""

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Record the requests of every client in this process."""
        send = RESTClientObject.request

        def request(client: Any, method: str, url: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the client's own
            if self.authorization is not None and kwargs.get("headers"):
                kwargs["headers"] = self.authorization(kwargs["headers"])
            response = send(client, method, url, *args, **kwargs)
            sent = SentRequest(caller=CALLER.get(), method=method, path=urlsplit(url).path, status=response.status)
            with self._lock:
                self.requests.append(sent)
                if self._with_bodies and (audit_id := response.getheader("Audit-Id")):
                    self.bodies[audit_id] = _sent_body(kwargs)
            return response

        with backends.replaced(RESTClientObject, "request", request):
            yield

    def denied(self) -> list[str]:
        """The requests that were answered with 403, one text each."""
        return [
            f"{request.caller or 'the relay or a kubelet'}: {request.method} {request.path}"
            for request in self.requests
            if request.status == _FORBIDDEN
        ]


def _sent_body(kwargs: Mapping[str, Any]) -> SentBody:
    """The body of a call of the client's ``request``."""
    headers = {name.lower(): str(value) for name, value in (kwargs.get("headers") or {}).items()}
    body = kwargs.get("body")
    if body is not None and not isinstance(body, bytes):
        body = (body if isinstance(body, str) else json.dumps(body)).encode()
    return SentBody(headers.get("content-type", "application/json"), headers.get("accept", ""), body or b"")
