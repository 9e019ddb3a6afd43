"""The one door between boto3 and moto: every request passes here, one at a time.

moto keeps its data in plain dictionaries, so requests are served under one lock; here they are also recorded, failed on
demand, and answered for services that moto doesn't have. The lock is free while a fault delays a request.
"""

from __future__ import annotations

import json
import threading
import time
from io import BytesIO
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectionClosedError
from moto.core.models import botocore_stubber

from local.aws.calls import CALLER, Call, Calls
from local.faults import Crash, Fault, Faults, InjectionPoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    import boto3

Answer = tuple[int, dict[str, str], bytes]
_FAILED = 400
_EC2 = (
    "<Response><Errors><Error><Code>{}</Code><Message>{}</Message></Error></Errors><RequestID>0</RequestID></Response>"
)
_QUERY = "<ErrorResponse><Error><Type>Sender</Type><Code>{}</Code><Message>{}</Message></Error></ErrorResponse>"
_S3 = "<Error><Code>{}</Code><Message>{}</Message></Error>"
_XML = {"ec2": _EC2, "s3": _S3, "iam": _QUERY, "sts": _QUERY, "cloudformation": _QUERY}


class _Body(BytesIO):
    def stream(self, **_: object) -> Any:  # noqa: ANN401 - a generator of bytes, as urllib3's
        yield self.read()


class Interceptor:
    """A handler of botocore's ``before-send``; :meth:`guard` puts it in moto's place in a session."""

    def __init__(
        self, *, calls: Calls, faults: Faults, now: Callable[[], datetime], sleep: Callable[[float], None]
    ) -> None:
        self.lock = threading.RLock()
        self._calls = calls
        self._faults = faults
        self._now = now
        self._sleep = sleep
        self._services: dict[str, Callable[[str, bytes], Answer]] = {}

    def guard(self, session: boto3.Session) -> None:
        """Have all clients that the session makes from now on pass through here."""
        session.events.unregister("before-send", botocore_stubber)
        session.events.register("before-send", self)  # type: ignore[arg-type]  # typed as if handlers answered nothing

    def serve(self, service: str, answer: Callable[[str, bytes], Answer]) -> None:
        """Answer a service that moto lacks: called with the operation and the request's body."""
        self._services[service] = answer

    def __call__(self, event_name: str, request: Any, **kwargs: object) -> AWSResponse:  # noqa: ANN401, ARG002 - botocore's request, and what else it passes
        """Answer one request, as botocore's handler of ``before-send.SERVICE.OPERATION``."""
        service, operation = event_name.split(".")[1:]
        service = service.lower()
        site = InjectionPoint(service=service, operation=operation, caller=CALLER.get())
        at = self._now()
        started = time.perf_counter()
        action = self._faults.next_fault(site) or Fault()
        if action.delay:
            self._sleep(action.delay)
        if action.crash == "before":
            raise Crash(f"before {service} {operation}")
        if action.disconnect == "before":
            self._record(site, at, started, error="ConnectionClosed")
            raise ConnectionClosedError(endpoint_url=request.url)
        if action.code:
            self._record(site, at, started, error=action.code)
            return _response(request.url, _error(service, action))
        with self.lock:
            answer = self._answer(event_name, request, service, operation)
        self._record(site, at, started, error=_code(answer) if answer[0] >= _FAILED else "")
        if action.crash == "after":
            raise Crash(f"after {service} {operation}")
        if action.disconnect == "after":
            raise ConnectionClosedError(endpoint_url=request.url)
        return _response(request.url, answer)

    def _answer(self, event_name: str, request: Any, service: str, operation: str) -> Answer:  # noqa: ANN401 - the same
        if service in self._services:
            body = request.body if isinstance(request.body, bytes) else str(request.body or "").encode()
            return self._services[service](operation, body)
        response = botocore_stubber(event_name, request)
        if response is None:
            raise LookupError(f"{service} {operation} would leave this machine: nothing here answers {request.url}")
        return response.status_code, dict(response.headers), response.content

    def _record(self, site: InjectionPoint, at: datetime, started: float, *, error: str) -> None:
        self._calls.add(
            Call(
                at=at,
                service=site.service,
                operation=site.operation,
                caller=site.caller,
                latency=time.perf_counter() - started,
                error=error,
            )
        )


def json_error(status: int, code: str, message: str) -> Answer:
    """An error as the JSON protocols answer it."""
    return status, {"x-amzn-errortype": code}, json.dumps({"__type": code, "message": message}).encode()


def _error(service: str, action: Fault) -> Answer:
    template = _XML.get(service)
    if template is None:
        return json_error(action.status, action.code, action.message)
    return action.status, {}, template.format(escape(action.code), escape(action.message)).encode()


def _response(url: str, answer: Answer) -> AWSResponse:
    status, headers, body = answer
    return AWSResponse(url, status, headers, _Body(body))  # type: ignore[arg-type]  # botocore reads it as urllib3's


def _code(answer: Answer) -> str:
    text = answer[2].decode(errors="replace")
    if "<Code>" in text:
        return text.split("<Code>", 1)[1].split("</Code>", 1)[0]
    try:
        parsed = json.loads(text)
    except ValueError:
        return str(answer[0])
    kind = parsed.get("__type") if isinstance(parsed, dict) else None
    header = {key.lower(): value for key, value in answer[1].items()}.get("x-amzn-errortype")
    return str(kind or header or answer[0]).rsplit("#", 1)[-1]
