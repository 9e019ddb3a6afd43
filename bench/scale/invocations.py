"""Measures the first and warm invocations of functions in clusters of several sizes, idle and busy; saves the figures.

``python -m bench.scale.invocations NODES [FUNCTION...]``. Idle: nothing changes but kubelets' reports. Busy: 2 % of the
pods are replaced in an hour, and as many new ones find no place, so that each minute has a decision. Invocations are a
minute apart by the function's clock. Requests and bytes are counted by the stub of the API server, processor time is
that of the process without the local AWS's part.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import json
import os
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench import function_resources, local_aws, stub_account
from bench.stub_api_server import MINUTE, REQUESTS
from functions.termination.settings import TerminationSettings
from infra import function_sizes
from local.aws.backends import replaced
from local.aws.interceptor import Interceptor
from shared.base import runtime
from shared.base.settings import read
from shared.base.struct import MutableStruct
from shared.cluster.connect import connect
from shared.cluster.watch import WatchStream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

RESULTS = Path(__file__).parent / "results.json"
CLUSTERS = {100: 2_000, **dict(function_resources.CLUSTERS)}
"""Pods by nodes."""
INVOCATIONS_AN_HOUR = 60
FUNCTIONS = function_resources.GROWING
REPLACED_AN_HOUR = 0.02
"""The share of the pods."""
FIRST, IDLE, BUSY, WARNINGS = "first", "idle", "busy", "warnings"
_SETTLING = "settling"
_MINUTES = (FIRST, _SETTLING, *[IDLE] * 3, *[BUSY] * 3)
"""Three of a kind: where its events prove nothing, a watch waits for a bookmark every two or three minutes
(``watched_objects.MAX_UNPROVEN``)."""
Invocation = dict[str, Any]
"""``seconds`` (processor time), ``elapsed``, ``silences`` (seconds), ``log_bytes``, ``calls`` of AWS by service and
operation, and ``requests`` (bench/stub_requests.py)."""


class _Meter(MutableStruct):
    """What the running invocation did, but for its requests to the API server."""

    aws_seconds: float = 0.0
    silences: float = 0.0
    calls: Counter[str] = msgspec.field(default_factory=Counter)

    def answered(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a response of the local AWS."""

        def spent(seconds: float, call: str) -> None:
            self.aws_seconds += seconds
            self.calls[call] += 1

        return local_aws.timed(answer, spent)

    def waited(self, following: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps the wait for a watch's next event: Lambda charges for a wait without one."""

        @functools.wraps(following)
        def heard(stream: Any, seconds: float) -> Any:
            event = following(stream, seconds)
            if event is None:
                self.silences += seconds
            return event

        return heard


def measure(function: str, nodes: int, pods: int) -> dict[str, Any]:
    """MiB of the first invocation and of all, and each kind of invocation's figures, as means."""
    handler = importlib.import_module(f"functions.{function}.handler")
    meter, at = _Meter(), function_resources.first_turn()
    with (
        stub_account.account(nodes, pods) as environ,
        replaced(Interceptor, "__call__", meter.answered(Interceptor.__call__)),
        replaced(WatchStream, "next", meter.waited(WatchStream.next)),
    ):
        if function in function_resources.DESCRIBING:
            lasts = len(_MINUTES) + 2
            stub_account.launch(n for n in range(nodes) if function_resources.is_asked_about(n, nodes, at, lasts))
        control = _control(environ)
        minute, began, resident = 0, time.monotonic(), function_resources.resident_before()

        def now() -> datetime:
            return at + timedelta(minutes=minute, seconds=time.monotonic() - began)

        clock = runtime.Runtime(environ=environ, now=now)
        first_mib, invocations = 0.0, []
        for minute, kind in enumerate(_minutes(function)):  # noqa: B007 (the clock reads it)
            control.create(MINUTE, _load(kind, pods))
            control.get(REQUESTS)
            began = time.monotonic()
            figures = _invoke(handler, _event(function, kind), clock, meter)
            figures["requests"] = json.loads(control.get(REQUESTS))
            invocations.append((kind, figures))
            first_mib = first_mib or (function_resources.peak() - resident) / function_resources.MIB
    mib = (function_resources.peak() - resident) / function_resources.MIB
    kinds = [kind for kind in (FIRST, IDLE, BUSY, WARNINGS) if kind in _minutes(function)]
    means = {kind: mean([figures for k, figures in invocations if k == kind]) for kind in kinds}
    listed_twice = sorted({name for _, figures in invocations for name in listed_twice_in(figures["requests"])})
    return {"first_mib": first_mib, "mib": mib, "listed_twice": listed_twice, **means}


def mean(values: Sequence[Any]) -> Any:
    """The mean of numbers, or of each figure of records; a figure that some lack is 0 there.

    >>> mean([{"requests": {"get nodes": 1}}, {"requests": {}}])
    {'requests': {'get nodes': 0.5}}
    """
    records = [value for value in values if isinstance(value, dict)]
    if not records:
        return round(sum(values) / len(values), 4)
    names = sorted({name for record in records for name in record})
    return {name: mean([value.get(name, 0) if isinstance(value, dict) else 0 for value in values]) for name in names}


def listed_twice_in(requests: Mapping[str, Mapping[str, int]]) -> list[str]:
    """The kinds that an invocation listed more than once; lists of one node's pods aren't lists of a kind."""
    return [
        name
        for name, counts in requests.items()
        if name.startswith("list ") and not name.endswith((" of a node", ", none of them")) and counts["first"] > 1
    ]


def replaced_a_minute(pods: int) -> int:
    """The pods that a minute of the busy load replaces."""
    return max(round(pods * REPLACED_AN_HOUR / 60), 1)


def _minutes(function: str) -> tuple[str, ...]:
    return (*_MINUTES, WARNINGS) if function == function_sizes.INTERRUPTION else _MINUTES


def _load(kind: str, pods: int) -> dict[str, int]:
    number = replaced_a_minute(pods)
    return {
        "replaced": number if kind in {BUSY, WARNINGS} else 0,
        "pending": 0 if kind in {IDLE, _SETTLING} else number,
    }


def _event(function: str, kind: str) -> dict[str, Any]:
    """A sweep, but for interruption's batches of warnings: its first invocation, and a warm one."""
    if function == function_sizes.INTERRUPTION and kind in {IDLE, BUSY, _SETTLING}:
        return function_resources.scheduled_sweep(0)
    return function_resources.EVENTS[function](int(kind == WARNINGS))


def _control(environ: Mapping[str, str]) -> Any:
    with runtime.using(runtime.Runtime(environ=environ)):
        return connect(read(TerminationSettings, environ))


def _invoke(handler: Any, event: dict[str, Any], clock: runtime.Runtime, meter: _Meter) -> Invocation:
    meter.aws_seconds, meter.silences, meter.calls = 0.0, 0.0, Counter()
    context = stub_account.context("f", seconds=function_sizes.SIZES[_name(handler)].timeout)
    logged = io.StringIO()
    began, began_at = time.process_time(), time.perf_counter()
    with runtime.using(clock), contextlib.redirect_stdout(logged):
        handler.handle(event, context)
    return {
        "seconds": time.process_time() - began - meter.aws_seconds,
        "elapsed": time.perf_counter() - began_at - meter.aws_seconds,
        "silences": meter.silences,
        "log_bytes": len(logged.getvalue().encode()),
        "calls": dict(meter.calls),
    }


def _name(handler: Any) -> str:
    name: str = handler.__name__.split(".")[1]
    return name


def saved_results() -> dict[int, dict[str, dict[str, Any]]]:
    """The saved figures, by nodes and function."""
    if not RESULTS.exists():
        return {}
    return {int(nodes): by_function for nodes, by_function in json.loads(RESULTS.read_text(encoding="utf-8")).items()}


def main(nodes: int, names: list[str]) -> None:
    """Measure these functions, or all, each in a new process, one after the other; save each."""
    for function in names or FUNCTIONS:
        command = [sys.executable, "-m", "bench.scale.invocations", "measure", function, str(nodes)]
        environ = {**os.environ, **function_sizes.RUNTIME}
        process = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
        saved = saved_results()
        saved.setdefault(nodes, {})[function] = json.loads(process.stdout.splitlines()[-1])
        RESULTS.write_text(_text(saved), encoding="utf-8")
        print(f"{function}, {nodes} nodes", flush=True)


def _text(saved: Mapping[int, Mapping[str, Any]]) -> str:
    """The results as JSON, a line for each function of each size."""
    sizes = (
        f'"{nodes}": {{\n' + ",\n".join(f'"{name}": {json.dumps(saved[nodes][name])}' for name in saved[nodes]) + "\n}"
        for nodes in sorted(saved)
    )
    return "{\n" + ",\n".join(sizes) + "\n}\n"


if __name__ == "__main__":
    if sys.argv[1] == "measure":
        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]), CLUSTERS[int(sys.argv[3])])))
    else:
        main(int(sys.argv[1]), sys.argv[2:])
