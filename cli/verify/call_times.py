"""How long each call to AWS took, as botocore sees it: with its retries, until the answer is parsed.

Services have the names of botocore's events, as in the local AWS's table of latencies (local/aws/latencies.yaml).
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any

from cli.json_output import Output
from local.aws import latencies
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from shared.base.aws import UntypedClient

_BEGUN = "tenon_verify_begun"
_PERCENTILE = 0.99


class TimedCall(Struct, kw_only=True):
    """One call; ``error`` is AWS's code, "" on success."""

    step: str
    operation: str
    seconds: float
    error: str


class Latency(Output, frozen=True, kw_only=True):
    """Seconds that the calls of an operation took, and that the local AWS assumes for one."""

    median: float
    p99: float
    count: int
    assumed_median: float
    assumed_p99: float


class CallTimes:
    """The calls of all watched clients, oldest first. ``step`` is the one that makes the next calls."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self.step = ""
        self.all: list[TimedCall] = []

    def watch(self, client: UntypedClient) -> None:
        """Measure every later call of the client."""
        events = client.meta.events
        events.register("before-call", self._begin)
        events.register("after-call", self._end)
        events.register("after-call-error", self._end)

    def latencies(self) -> dict[str, Latency]:
        """The latencies by operation, such as "ec2.CreateFleet"."""
        by_operation: dict[str, list[float]] = {}
        for call in self.all:
            by_operation.setdefault(call.operation, []).append(call.seconds)
        return {operation: _latency(operation, seconds) for operation, seconds in sorted(by_operation.items())}

    def _begin(self, context: dict[str, Any], **_: object) -> None:
        context[_BEGUN] = self._now()

    def _end(
        self,
        context: Mapping[str, Any],
        event_name: str,
        parsed: Mapping[str, Any] | None = None,
        exception: Exception | None = None,
        **_: object,
    ) -> None:
        service, operation = event_name.split(".")[1:3]
        error = type(exception).__name__ if exception is not None else (parsed or {}).get("Error", {}).get("Code", "")
        self.all.append(
            TimedCall(
                step=self.step,
                operation=f"{service}.{operation}",
                seconds=(self._now() - context[_BEGUN]).total_seconds(),
                error=error,
            )
        )


def quantiles(seconds: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th percentile (nearest rank).

    >>> quantiles([0.2, 0.1, 0.4])
    (0.2, 0.4)
    """
    ordered = sorted(seconds)
    rank = max(0, math.ceil(_PERCENTILE * len(ordered)) - 1)
    return round(statistics.median(ordered), 4), round(ordered[rank], 4)


def _latency(name: str, seconds: Sequence[float]) -> Latency:
    service, operation = name.split(".")
    assumed = latencies.row(latencies.table(), service, operation)
    median, p99 = quantiles(seconds)
    return Latency(median=median, p99=p99, count=len(seconds), assumed_median=assumed.median, assumed_p99=assumed.p99)
