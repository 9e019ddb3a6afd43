"""The requests of this process to the Kubernetes API, with their statuses: what functions, relay and kubelets sent."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kubernetes.client.rest import RESTClientObject

from local.aws import backends
from local.aws.calls import CALLER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_FORBIDDEN = 403


@dataclass(frozen=True, kw_only=True)
class SentRequest:
    """A request and the status of its response. ``caller`` is a function, or "" for the relay and kubelets."""

    caller: str
    method: str
    path: str
    status: int


class RequestLog:
    """The requests while :meth:`recorded` is entered, oldest first.

    ``authorization`` may replace the headers of a request, for clusters that don't know the functions' tokens.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.authorization: Callable[[Mapping[str, str]], Mapping[str, str]] | None = None
        self.requests: list[SentRequest] = []

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
