"""How long calls take: AWS's and the Kubernetes API's answers, by the table in ``latencies.yaml``.

A latency is drawn from a log-normal distribution with the table's median and 99th percentile. The n-th call of an
operation always takes as long with the same seed, whatever other operations are called.
"""

from __future__ import annotations

import math
import random
import threading
from collections import Counter
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING

import msgspec

from shared.base.struct import WireStruct

if TYPE_CHECKING:
    from collections.abc import Mapping

_TABLE = Path(__file__).with_name("latencies.yaml")
_ANY = "*"
_P99 = NormalDist().inv_cdf(0.99)


class Latency(WireStruct, kw_only=True):
    """The row of an operation: seconds. ``items`` is the parameter that counts items: a number, or a list."""

    service: str
    operation: str
    median: float
    p99: float
    source: str
    per_item: float = 0.0
    items: str = ""

    def draw(self, parameters: Mapping[str, str], choose: random.Random) -> float:
        """The seconds that one call takes."""
        sigma = math.log(self.p99 / self.median) / _P99
        further = max(_count(parameters, self.items) - 1, 0) if self.items else 0
        return choose.lognormvariate(math.log(self.median), sigma) + further * self.per_item


def _count(parameters: Mapping[str, str], name: str) -> int:
    return int(parameters[name]) if name in parameters else sum(key.startswith(f"{name}.") for key in parameters)


@cache
def table() -> Mapping[tuple[str, str], Latency]:
    """The rows by service and operation."""
    rows = msgspec.yaml.decode(_TABLE.read_bytes(), type=tuple[Latency, ...])
    return {(row.service, row.operation): row for row in rows}


def row(rows: Mapping[tuple[str, str], Latency], service: str, operation: str) -> Latency:
    """The row of an operation: its own, its service's, or that of all."""
    keys = ((service, operation), (service, _ANY), (_ANY, _ANY))
    return next(match for key in keys if (match := rows.get(key)) is not None)


class Latencies:
    """The latencies of a world's calls. Thread-safe."""

    def __init__(self, rows: Mapping[tuple[str, str], Latency], *, seed: int = 0) -> None:
        self._rows = rows
        self._seed = seed
        self._lock = threading.Lock()
        self._calls: Counter[tuple[str, str]] = Counter()

    def next(self, service: str, operation: str, parameters: Mapping[str, str]) -> float:
        """The seconds that this call of the operation takes."""
        with self._lock:
            number = self._calls[service, operation]
            self._calls[service, operation] += 1
        # A generator of their own: the order of different operations, of other threads, doesn't matter.
        choose = random.Random(f"{self._seed}/{service}/{operation}/{number}")  # noqa: S311 - not for security: how long calls take
        return row(self._rows, service, operation).draw(parameters, choose)
