"""Deaths at requests to the Kubernetes API, on the caller's side: the request is never sent, or its answer never seen.

A server can drop a connection, which a client survives; only here can the process that asks die.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kubernetes.client.rest import RESTClientObject

from local.aws import backends
from local.aws.calls import CALLER
from local.faults import Crash, Fault, InjectionPoint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.faults import Faults


@contextlib.contextmanager
def kubernetes_client_crashes(faults: Faults) -> Iterator[None]:
    """While entered, faults named for a function (not for its client) can crash it at its requests."""
    send = RESTClientObject.request

    def request(client: Any, method: str, url: str, *args: Any, **more: Any) -> Any:  # noqa: ANN401 - the client's own
        caller = CALLER.get()
        action = None
        if caller:
            site = InjectionPoint(
                service="kubernetes", operation=method, caller=caller, target=urlsplit(url).path, sending=True
            )
            action = faults.next_fault(site)
        action = action or Fault()
        if action.crash == "before":
            raise Crash(f"before {method} {url}")
        answer = send(client, method, url, *args, **more)
        if action.crash == "after":
            raise Crash(f"after {method} {url}")
        return answer

    with backends.replaced(RESTClientObject, "request", request):
        yield
