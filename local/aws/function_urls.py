"""Lambda function URLs: requests invoke functions and wait for them, as the Lambda Developer Guide describes."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from local.aws.lambda_functions import LambdaFunctions

_THROTTLED, _FAILED, _FORBIDDEN = 429, 502, 403
MAX_BYTES = 6 * 1024 * 1024
"""The most that a synchronous invocation takes."""
_TOO_LARGE = 413


class FunctionUrls:
    """The URLs of the deployed functions; ``hosts`` has the functions' names by host."""

    def __init__(self, functions: LambdaFunctions, hosts: Mapping[str, str], *, now: Callable[[], datetime]) -> None:
        self._functions = functions
        self._hosts = hosts
        self._now = now

    def request(
        self, method: str, url: str, body: bytes, *, content_type: str = "application/json"
    ) -> tuple[int, bytes]:
        """The status and body that the function answers with; Lambda's own for one that is throttled or fails."""
        parts = urlsplit(url)
        if parts.netloc not in self._hosts:
            return _FORBIDDEN, b'{"Message":"Forbidden"}'
        function = self._hosts[parts.netloc]
        if len(body) > MAX_BYTES:
            return _TOO_LARGE, b""
        if self._functions.is_throttled(function):
            return _THROTTLED, b'{"Reason":"ConcurrentInvocationLimitExceeded","Type":"User"}'
        event = _event(method, parts.path, parts.netloc, body, content_type, self._now())
        invocation = self._functions.invoke(function, event, trigger="function url")
        return _response(invocation.result) if invocation.ok else (_FAILED, b"Internal Server Error")


def _event(method: str, path: str, host: str, body: bytes, content_type: str, at: datetime) -> dict[str, Any]:
    """The event of a request, payload format 2.0. Lambda passes bodies that aren't text in Base64."""
    is_text = content_type.startswith(("application/json", "text/"))
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path or "/",
        "rawQueryString": "",
        "headers": {"content-type": content_type, "host": host, "content-length": str(len(body))},
        "requestContext": {
            "accountId": "anonymous",
            "apiId": host.partition(".")[0],
            "domainName": host,
            "http": {"method": method, "path": path or "/", "protocol": "HTTP/1.1", "sourceIp": "198.51.100.7"},
            "routeKey": "$default",
            "stage": "$default",
            "timeEpoch": int(at.timestamp() * 1000),
        },
        "body": body.decode() if is_text else base64.b64encode(body).decode(),
        "isBase64Encoded": not is_text,
    }


def _response(result: Any) -> tuple[int, bytes]:
    """A handler's response with a ``statusCode``, or any other result as JSON."""
    if isinstance(result, dict) and "statusCode" in result:
        return int(result["statusCode"]), str(result.get("body", "")).encode()
    return 200, json.dumps(result).encode()
