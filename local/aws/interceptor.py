"""Intercepts every request of boto3 to moto: serves them one at a time, records them, and injects faults.

moto keeps its data in plain dictionaries, so requests are served under one lock. A request is served first, and its
answer comes later, while the lock is free. Services that moto lacks are served here, too.
"""

from __future__ import annotations

import json
import threading
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit
from xml.sax.saxutils import escape

from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectionClosedError
from moto.core.models import botocore_stubber

from local.aws import ec2_limits, invocation_timeout
from local.aws.calls import CALLER, Call, Calls
from local.aws.invocation_timeout import TIMEOUT
from local.faults import Crash, Fault, Faults, InjectionPoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    import boto3

    from local.aws.latencies import Latencies

RawResponse = tuple[int, dict[str, str], bytes]
_FIRST_ERROR_STATUS = 400
_EC2_ERROR = (
    "<Response><Errors><Error><Code>{}</Code><Message>{}</Message></Error></Errors><RequestID>0</RequestID></Response>"
)
_QUERY_ERROR = "<ErrorResponse><Error><Type>Sender</Type><Code>{}</Code><Message>{}</Message></Error></ErrorResponse>"
_S3_ERROR = "<Error><Code>{}</Code><Message>{}</Message></Error>"
_XML_ERRORS = {
    "ec2": _EC2_ERROR,
    "s3": _S3_ERROR,
    "iam": _QUERY_ERROR,
    "sts": _QUERY_ERROR,
    "cloudformation": _QUERY_ERROR,
    "auto-scaling": _QUERY_ERROR,
}


class _Body(BytesIO):
    def stream(self, **_: object) -> Any:
        yield self.read()


class Interceptor:
    """A handler of botocore's ``before-send``; :meth:`guard` replaces moto's handler by it in a session."""

    def __init__(
        self,
        *,
        calls: Calls,
        faults: Faults,
        now: Callable[[], datetime],
        sleep: Callable[[float], None],
        latencies: Latencies | None = None,
    ) -> None:
        """``latencies`` are those of functions' calls; without them, calls take no longer than the work here."""
        self.lock = threading.RLock()
        self._calls = calls
        self._faults = faults
        self._now = now
        self._sleep = sleep
        self._latencies = latencies
        self._services: dict[str, Callable[[str, bytes], RawResponse]] = {}
        self._rest_services: dict[str, Callable[[str, str, bytes], RawResponse]] = {}
        self._operations: dict[tuple[str, str], Callable[[bytes], RawResponse]] = {}

    def guard(self, session: boto3.Session) -> None:
        """Intercept the requests of all clients that the session creates from now on."""
        session.events.unregister("before-send", botocore_stubber)
        session.events.register("before-send", self)  # type: ignore[arg-type]  # typed as if handlers answered nothing

    def serve(self, service: str, handler: Callable[[str, bytes], RawResponse]) -> None:
        """Serve a service that moto lacks: the handler gets the operation and the request's body."""
        self._services[service] = handler

    def serve_rest(self, service: str, handler: Callable[[str, str, bytes], RawResponse]) -> None:
        """Serve a service that moto lacks, and whose parameters are in the path, which the handler gets too."""
        self._rest_services[service] = handler

    def serve_operation(self, service: str, operation: str, handler: Callable[[bytes], RawResponse]) -> None:
        """Serve an operation that moto lacks: the handler gets the request's body."""
        self._operations[service, operation] = handler

    def __call__(self, event_name: str, request: Any, **kwargs: object) -> AWSResponse:  # noqa: ARG002 - botocore's request, and what else it passes
        """Serve one request, as botocore's handler of ``before-send.SERVICE.OPERATION``."""
        invocation_timeout.check()
        service, operation = event_name.split(".")[1:]
        service = service.lower()
        point = InjectionPoint(service=service, operation=operation, caller=CALLER.get())
        at = self._now()
        fault = self._faults.next_fault(point) or Fault()
        if fault.delay:
            self._wait(fault.delay)
        if fault.crash == "before":
            raise Crash(f"before {service} {operation}")
        if fault.disconnect == "before":
            self._record(point, at, error="ConnectionClosed")
            raise ConnectionClosedError(endpoint_url=request.url)
        if fault.code:
            self._record(point, at, error=fault.code)
            return _aws_response(request.url, _error(service, fault))
        with self.lock:
            response = self._serve(event_name, request, service, operation)
        if self._latencies is not None and point.caller:
            self._wait(self._latencies.next(service, operation, _parameters(service, request)))
        self._record(point, at, error=_error_code(response) if response[0] >= _FIRST_ERROR_STATUS else "")
        if fault.crash == "after":
            raise Crash(f"after {service} {operation}")
        if fault.disconnect == "after":
            raise ConnectionClosedError(endpoint_url=request.url)
        return _aws_response(request.url, response)

    def _wait(self, seconds: float) -> None:
        (timeout.wait if (timeout := TIMEOUT.get()) else self._sleep)(seconds)

    def _serve(self, event_name: str, request: Any, service: str, operation: str) -> RawResponse:
        body = _body(request)
        if service == "ec2" and (fault := ec2_limits.request_error(operation, body, caller=CALLER.get())):
            return _error(service, fault)
        if answer := self._operations.get((service, operation)):
            return answer(body)
        if handler := self._services.get(service):
            return handler(operation, body)
        if rest_handler := self._rest_services.get(service):
            return rest_handler(operation, urlsplit(request.url).path, body)
        response = botocore_stubber(event_name, request)
        if response is None:
            raise LookupError(f"{service} {operation} would leave this machine: nothing here serves {request.url}")
        return response.status_code, dict(response.headers), response.content

    def _record(self, point: InjectionPoint, at: datetime, *, error: str) -> None:
        self._calls.add(
            Call(
                at=at,
                service=point.service,
                operation=point.operation,
                caller=point.caller,
                latency=(self._now() - at).total_seconds(),
                error=error,
            )
        )


def _body(request: Any) -> bytes:
    return request.body if isinstance(request.body, bytes) else str(request.body or "").encode()


def _parameters(service: str, request: Any) -> dict[str, str]:
    """The parameters of a request to EC2; none of others, whose latencies don't depend on them."""
    return dict(parse_qsl(_body(request).decode())) if service == "ec2" else {}


def json_error(status: int, code: str, message: str) -> RawResponse:
    """An error response of the JSON protocols."""
    return status, {"x-amzn-errortype": code}, json.dumps({"__type": code, "message": message}).encode()


def _error(service: str, fault: Fault) -> RawResponse:
    template = _XML_ERRORS.get(service)
    if template is None:
        return json_error(fault.status, fault.code, fault.message)
    return fault.status, {}, template.format(escape(fault.code), escape(fault.message)).encode()


def _aws_response(url: str, response: RawResponse) -> AWSResponse:
    status, headers, body = response
    return AWSResponse(url, status, headers, _Body(body))  # type: ignore[arg-type]  # botocore reads it as urllib3's


def _error_code(response: RawResponse) -> str:
    text = response[2].decode(errors="replace")
    if "<Code>" in text:
        return text.split("<Code>", 1)[1].split("</Code>", 1)[0]
    try:
        parsed = json.loads(text)
    except ValueError:
        return str(response[0])
    type_ = parsed.get("__type") if isinstance(parsed, dict) else None
    header = {key.lower(): value for key, value in response[1].items()}.get("x-amzn-errortype")
    return str(type_ or header or response[0]).rsplit("#", 1)[-1]
