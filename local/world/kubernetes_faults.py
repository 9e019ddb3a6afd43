"""Faults at requests to the Kubernetes API: crashes of the caller; errors, delays and lost connections at the server.

Functions' requests also take time here, as those to AWS do (local/aws/latencies.py). A function waits itself for an
answer that is delayed: threads that wait at the same time then wait together, and it can end at its timeout.

A server can only drop a connection, which a client survives. A crash must occur in the process that sends the request.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from kubernetes.client.rest import RESTClientObject

from local.aws import backends, invocation_timeout
from local.aws.calls import CALLER
from local.aws.invocation_timeout import TIMEOUT
from local.faults import Crash, Fault, InjectionPoint
from local.kubernetes.apiserver.api import error_response
from local.kubernetes.apiserver.http import Response
from local.kubernetes.errors import ApiError
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local.aws.latencies import Latencies
    from local.faults import Faults
    from local.kubernetes.apiserver.http import Request


_CALLER_WAITS, _DELAY = "x-caller-waits", "x-delay"
"""Headers of a function's request, and of the answer: the seconds that its caller waits."""


@contextlib.contextmanager
def kubernetes_requests(faults: Faults, latencies: Latencies | None) -> Iterator[None]:
    """While entered, functions' requests take time, and faults for a function (not for its client) can crash it."""
    send = RESTClientObject.request

    def request(client: Any, method: str, url: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the client's own
        invocation_timeout.check()
        caller = CALLER.get()
        fault = None
        if caller:
            path = urlsplit(url).path
            fault = faults.next_fault(
                InjectionPoint(service="kubernetes", operation=method, caller=caller, target=path, sending=True)
            )
        fault = fault or Fault()
        if fault.crash == "before":
            raise Crash(f"before {method} {url}")
        timeout = TIMEOUT.get()
        if timeout is not None:
            kwargs["headers"] = {**kwargs.get("headers", {}), _CALLER_WAITS: "true"}
        response = send(client, method, url, *args, **kwargs)
        with contextlib.ExitStack() as process:
            process.callback(response.response.close)  # its sockets end with it
            if timeout is not None and (delay := response.headers.get(_DELAY)):
                timeout.wait(float(delay))
            if latencies is not None and timeout is not None:
                timeout.wait(latencies.next("kubernetes", method, {}))
            invocation_timeout.check()
            if fault.crash == "after":
                raise Crash(f"after {method} {url}")
            process.pop_all()
        return response

    with backends.replaced(RESTClientObject, "request", request):
        yield


class ServerFaults:
    """An intercept of the API server that answers with the faults of a world."""

    def __init__(
        self, faults: Faults, *, sleep: Callable[[float], None], respond: Callable[[Request], Response]
    ) -> None:
        """``respond`` is the API's own answer to a request."""
        self._faults = faults
        self._sleep = sleep
        self._respond = respond
        self._state = threading.local()

    def __call__(self, request: Request) -> Response | None:
        """The response of a fault, or None for the API's own."""
        if getattr(self._state, "serving", False):
            return None
        caller = request.headers.get("user-agent", "")
        fault = self._faults.next_fault(
            InjectionPoint(service="kubernetes", operation=request.method, target=request.path, caller=caller)
        )
        if fault is None:
            return None
        if fault.delay and _CALLER_WAITS in request.headers and not fault.disconnect:
            answer = self._answer(request, fault) or self._serve(request)
            return with_fields(answer, headers=(*answer.headers, (_DELAY, str(fault.delay))))
        if fault.delay:
            self._sleep(fault.delay)
        return self._answer(request, fault)

    def _answer(self, request: Request, fault: Fault) -> Response | None:
        if fault.disconnect == "after":
            self._serve(request)
        if fault.disconnect:
            return Response(drop=True)
        if fault.listed < 1:
            return self._cut(request, fault.listed)
        if not fault.code:
            return None
        details = {"retryAfterSeconds": fault.retry_after} if fault.retry_after else None
        return error_response(ApiError(fault.status, fault.code, fault.message, details))

    def _serve(self, request: Request) -> Response:
        """Carry out the request, also where its response is lost."""
        self._state.serving = True
        try:
            return self._respond(request)
        finally:
            self._state.serving = False

    def _cut(self, request: Request, share: float) -> Response:
        """The response with that share of a list's objects; a list of one name is read by its key, and is whole."""
        response = self._serve(request)
        if request.verb != "list" or request.query.get("fieldSelector", "").startswith("metadata.name="):
            return response
        listed = msgspec.json.decode(response.body, type=dict[str, Any])
        items = listed["items"][: int(share * len(listed["items"]))]
        return with_fields(response, body=msgspec.json.encode({**listed, "items": items}))
