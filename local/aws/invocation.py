"""A finished invocation of a function, and the context that its handler is given."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from local.aws import backends
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from local.aws.stack import DeployedFunction


class LambdaContext:
    """The context argument of a handler."""

    def __init__(self, function: DeployedFunction, *, request_id: str, remaining: Callable[[], float]) -> None:
        self.function_name = function.name
        self.function_version = "$LATEST"
        self.memory_limit_in_mb = function.memory_mib
        self.invoked_function_arn = f"arn:aws:lambda:us-east-1:{backends.ACCOUNT}:function:{function.name}"
        self.aws_request_id = request_id
        self.log_group_name = f"/aws/lambda/{function.name}"
        self.log_stream_name = "local"
        self._remaining = remaining

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds of cluster time until the function's timeout."""
        return max(0, int(self._remaining() * 1000))


class Invocation(Struct, kw_only=True):
    """One finished invocation. ``latency`` in seconds of cluster time; ``result`` is the handler's return value.

    ``function`` is its folder, ``function_name`` its name in AWS.
    """

    function: str
    trigger: str
    at: datetime
    latency: float
    request_id: str
    ok: bool
    error: str = ""
    traceback: str = ""
    result: Any = None
    event: Any = None
    cold: bool = False
    output: str = ""
    function_name: str = ""

    @property
    def logs(self) -> tuple[dict[str, Any], ...]:
        """The structured log lines, without metrics."""
        return tuple(line for line in self._lines() if "_aws" not in line)

    @property
    def metrics(self) -> tuple[dict[str, Any], ...]:
        """The metrics, in CloudWatch's embedded metric format."""
        return tuple(line for line in self._lines() if "_aws" in line)

    def _lines(self) -> list[dict[str, Any]]:
        lines = []
        for text in self.output.splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                line = {"message": text}
            lines.append(line if isinstance(line, dict) else {"message": text})
        return lines
