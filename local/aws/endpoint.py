"""The local AWS over HTTP, for programs in other processes: an endpoint for all services, as AWS_ENDPOINT_URL names it.

Requests name their service and Region in their signature, which isn't checked. They are served as those of this
process, without a function's role.
"""

from __future__ import annotations

import functools
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs

from botocore.awsrequest import AWSPreparedRequest
from botocore.compat import HTTPHeaders
from botocore.session import get_session

if TYPE_CHECKING:
    from types import TracebackType

    from botocore.model import ServiceModel

    from local.aws.interceptor import Interceptor

_SCOPE = re.compile(r"Credential=[^/]+/\d+/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request")
_SIGNING_NAMES = {"monitoring": "cloudwatch"}
"""Services by the name in a signature, where it isn't botocore's."""
_HOSTS = {"cloudwatch": "monitoring", "pricing": "api.pricing"}
_OWN_HEADERS = frozenset({"content-length", "transfer-encoding", "connection", "date", "server"})


class Endpoint:
    """Serves a cloud on 127.0.0.1 while it is entered."""

    def __init__(self, interceptor: Interceptor) -> None:
        handler = type("Handler", (_Handler,), {"interceptor": interceptor})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="aws-endpoint", daemon=True)

    @property
    def url(self) -> str:
        """The value for AWS_ENDPOINT_URL."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    interceptor: Interceptor
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise each response waits 40 ms for an acknowledgement

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        scope = _SCOPE.search(self.headers.get("Authorization", ""))
        if scope is None:
            self._answer(403, {}, b"the request isn't signed")
            return
        service = _SIGNING_NAMES.get(scope["service"], scope["service"])
        operation = _operation(service, self.command, self.path, self.headers.get("X-Amz-Target", ""), body)
        host = f"{_HOSTS.get(service, service)}.{scope['region']}.amazonaws.com"
        headers = HTTPHeaders()
        for name, value in {**dict(self.headers.items()), "Host": host}.items():
            headers[name] = value
        request = AWSPreparedRequest(self.command, f"https://{host}{self.path}", headers, body, stream_output=False)
        try:
            response = self.interceptor(f"before-send.{service}.{operation}", request)
        except LookupError as error:
            self._answer(501, {}, str(error).encode())
            return
        self._answer(response.status_code, dict(response.headers), response.content)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = _serve  # noqa: N815 - http.server's names

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in _OWN_HEADERS:
                self.send_header(name, str(value))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing: the cloud records its calls itself."""


def _operation(service: str, method: str, path: str, target: str, body: bytes) -> str:
    """The operation's name, by the protocol of the request; empty if its service's model has none like it."""
    if target:
        return target.rpartition(".")[2]
    if method == "POST" and body.startswith((b"Action=", b"Version=")):
        return parse_qs(body.decode()).get("Action", [""])[0]
    for verb, pattern, name in _rest_operations(service):
        if verb == method and pattern.fullmatch(path.partition("?")[0]):
            return name
    return ""


@functools.cache
def _rest_operations(service: str) -> tuple[tuple[str, re.Pattern[str], str], ...]:
    """Method, path and name of a service's operations; the most specific paths come first."""
    model: ServiceModel = get_session().get_service_model(service)
    operations = [
        (o.http["method"], o.http["requestUri"].partition("?")[0], o.name)
        for o in map(model.operation_model, model.operation_names)
    ]
    operations.sort(key=lambda o: o[1].count("{"))
    return tuple(
        (verb, re.compile(re.sub(r"\\\{[^}]*\\\}", "[^/]+", re.escape(uri))), name) for verb, uri, name in operations
    )
