"""The memory of a warm function over ten thousand invocations: it must not follow their number.

The handler runs in a process of its own, as on Lambda. The Kubernetes API is a stub in a second process, AWS is local
in a third. The cluster changes between invocations: 50 of its pods each time. Resident memory moves by whole steps of
the allocator, so the blocks that Python's objects use are counted too: a leak shows in both.

``python -m bench.endurance.warm_memory FUNCTION`` measures one function, for up to an hour, and saves it in
warm_memory.json; the part of RESULTS.md has what is saved.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3

from bench import saved_figures, stub_account
from bench.stub_api_server import PENDING_PODS
from infra import function_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Measured = dict[str, dict[str, float]]
"""By the number of invocations: MiB, and blocks of Python's allocator."""
RESULTS = Path(__file__).parent / "warm_memory.json"
NODES, PODS = 5, 1_200
INVOCATIONS = 10_000
_FIRST = 1_000
"""After as many, caches are full: later invocations are compared with these."""
_PURGE_INTERVAL = 61.0
"""Seconds; SQS allows one purge of a queue in 60."""


def _tick() -> dict[str, Any]:
    return stub_account.batch([stub_account.scheduled()])


EVENTS: dict[str, Callable[[], dict[str, Any]]] = {
    function_sizes.PROVISIONER: _tick,
    function_sizes.LIFECYCLE: stub_account.scheduled,
    function_sizes.DISRUPTION: stub_account.scheduled,
    function_sizes.INTERRUPTION: _tick,
}


def run() -> list[dict[str, str]]:
    """The rows of this part: of the functions that were measured."""
    saved = _saved()
    return [_row(function, **saved[function]) for function in EVENTS if function in saved]


def _saved() -> dict[str, dict[str, Any]]:
    """By function, the day of its measurement and what was measured."""
    return saved_figures.read(RESULTS)


def save(function: str, measured: Measured) -> None:
    """Save what was measured of a function in place of its earlier measurement."""
    saved = _saved() | {function: {"day": time.strftime("%Y-%m-%d"), "after": measured}}
    saved_figures.write(RESULTS, saved)


def measure(function: str, invocations: int = INVOCATIONS) -> Measured:
    """The memory after the first thousand invocations, after half of all, and after all."""
    os.environ[PENDING_PODS] = "0"
    with stub_account.account(NODES, PODS) as environ:
        if function == function_sizes.LIFECYCLE:
            stub_account.launch(range(NODES))
        at = sorted({min(_FIRST, invocations // 4), invocations // 2, invocations})
        command = [sys.executable, "-m", "bench.endurance.warm_function", function, *map(str, at)]
        own = {**os.environ, **function_sizes.RUNTIME, **environ, "POWERTOOLS_LOG_LEVEL": "CRITICAL"}
        event = json.dumps(EVENTS[function]())
        with _queues_emptied():
            process = subprocess.run(command, input=event, stdout=subprocess.PIPE, text=True, env=own, check=True)
    measured: Measured = json.loads(process.stdout.splitlines()[-1])
    return measured


@contextlib.contextmanager
def _queues_emptied() -> Iterator[None]:
    """Queues that nobody reads are emptied: for each message that is sent, moto counts those that are there."""
    sqs, stopped = boto3.client("sqs"), threading.Event()

    def purge() -> None:
        while not stopped.wait(_PURGE_INTERVAL):
            for url in sqs.list_queues()["QueueUrls"]:
                sqs.purge_queue(QueueUrl=url)

    thread = threading.Thread(target=purge, name="purge")
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def growth(measured: Mapping[str, Mapping[str, float]]) -> tuple[float, float]:
    """MiB and blocks from half of the invocations to all."""
    _, half, whole = (measured[key] for key in sorted(measured, key=int))
    return whole["mib"] - half["mib"], whole["blocks"] - half["blocks"]


def _row(function: str, *, day: str, after: Measured) -> dict[str, str]:
    mib, blocks = growth(after)
    measured = (
        f"after {int(number):,} invocations {at['mib']:.1f} MiB, {at['blocks']:,.0f} blocks"
        for number, at in after.items()
    )
    return {
        "measurement": f"memory of a warm {function} function, its second half of invocations",
        "target": "at most 2 MiB, 1,000 blocks",
        "result": f"{mib:+.1f} MiB, {blocks:+,.0f} blocks",
        "method": f"{'; '.join(measured)}; {day}",
    }


if __name__ == "__main__":
    save(sys.argv[1], measure(sys.argv[1]))
