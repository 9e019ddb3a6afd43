"""Memory and time of each function for large clusters; infra/function_sizes.py is based on it.

Each handler runs in its own process, as a first invocation does, with a stub Kubernetes API in another process and a
local AWS in its own. Memory is that of a process that only imported the handler, plus the peak above the state before
the run; it includes the local AWS's responses, so it is an upper bound. Time is the processor time of the invocation
without the local AWS's part, at the processor share of the function's memory (1769 MiB is one vCPU). Waiting for the
API server and EC2 is not included, but in one row for the interruption function, whose timeout is short.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import local_aws, stub_account
from bench.stub_api_server import PAGE_SECONDS
from functions.termination.settings import TerminationSettings
from infra import function_sizes
from local.aws.interceptor import Interceptor
from shared.base import hints, runtime
from shared.base.settings import read
from shared.cloud_provider import Portion
from shared.cluster import resources
from shared.cluster.connect import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CLUSTERS = ((1_000, 20_000), (5_000, 100_000), (15_000, 450_000))
"""Nodes and pods. The second is as large as the largest known clusters with Karpenter; at the third only the functions
are measured whose work grows with the cluster."""
GROWING = (
    function_sizes.PROVISIONER,
    function_sizes.LIFECYCLE,
    function_sizes.DISRUPTION,
    function_sizes.INTERRUPTION,
)
DESCRIBING = (
    function_sizes.LIFECYCLE,
    function_sizes.DISRUPTION,
    function_sizes.TERMINATION,
    function_sizes.INTERRUPTION,
)
"""The functions that describe instances."""
MAX_FIRST_SECONDS = 40
"""What a first invocation may take, with the waiting for the API server and EC2."""
BATCH_NODES = 100
"""Nodes that are interrupted or drained in one batch."""
SLOW_PAGE_SECONDS = 0.05
"""An API server's time for a page of a list, on top of the transfer."""
SLOW_FLEET_SECONDS = 10.0
"""A slow CreateFleet of type instant, which answers when its instances are launched."""
SLOW_DESCRIBE_SECONDS = 1.0
"""A slow page of DescribeInstances."""
_AT_ONCE = 2
_MOST_PORTIONS = 16
_MINUTES = 3
"""How long two invocations take at most."""
_FULL_VCPU = 1769
MIB = 1 << 20
_STATUS = Path("/proc/self/status")


def run() -> list[dict[str, str]]:
    """Rows for each function and cluster size: memory and processor time, and how long it takes with waiting."""
    cases = [(function, nodes, pods) for nodes, pods in CLUSTERS[:-1] for function in EVENTS]
    with ThreadPoolExecutor(_AT_ONCE) as pool:  # processor time counts, of which each has a processor's
        measured = list(pool.map(lambda case: in_new_process(*case), cases))
    without_waiting = [_row(*case, own) for case, own in zip(cases, measured, strict=True)]
    with_waiting = []
    for function, (nodes, pods) in [(function_sizes.INTERRUPTION, CLUSTERS[1]), *((f, CLUSTERS[2]) for f in GROWING)]:
        result = in_new_process(function, nodes, pods, slow=True)
        if nodes == CLUSTERS[2][0]:
            without_waiting.append(_row(function, nodes, pods, result))
        with_waiting.append(_waiting_row(function, nodes, pods, result))
    return [*without_waiting, *with_waiting]


def kib_per_pod(measured: Mapping[str, float], pods: int) -> float:
    """KiB of memory for each pod of the cluster, with all else that the invocation needed."""
    return measured["mib"] * 1024 / pods


def _row(function: str, nodes: int, pods: int, measured: Mapping[str, float]) -> dict[str, str]:
    memory, timeout = function_sizes.memory(function, nodes), function_sizes.SIZES[function].timeout
    imported, seconds = measured["imported"], measured["seconds"]
    per_pod = f"{kib_per_pod(measured, pods):.2f} KiB a pod; " if function in GROWING else ""
    return {
        "measurement": f"{function}, {nodes:,} nodes / {pods:,} pods",
        "target": f"below {memory} MiB, {timeout} s",
        "result": f"{imported + measured['mib']:.0f} MiB, {seconds / share(memory):.1f} s",
        "method": f"{imported:.0f} MiB for imports; {per_pod}{seconds:.2f} s of a whole vCPU; {_WORK[function]}",
    }


def _waiting_row(function: str, nodes: int, pods: int, measured: Mapping[str, float]) -> dict[str, str]:
    """How long the first invocation takes with the API server's and EC2's answers as slow as real ones."""
    memory = function_sizes.memory(function, nodes)
    waited = measured["elapsed"] - measured["seconds"]
    warm = measured["warm_elapsed"] + measured["warm_seconds"] * (1 / share(memory) - 1)
    most = function_sizes.SIZES[function].timeout if nodes < CLUSTERS[-1][0] else MAX_FIRST_SECONDS
    return {
        "measurement": f"{function} with waiting, {nodes:,} nodes / {pods:,} pods",
        "target": f"below {most} s",
        "result": f"{waited + measured['seconds'] / share(memory):.1f} s, then {warm:.1f} s",
        "method": f"the first invocation and the second, elapsed at {memory} MiB without the local AWS's; "
        f"{SLOW_PAGE_SECONDS} s a page of a list, "
        f"{SLOW_DESCRIBE_SECONDS} s a page of DescribeInstances, {SLOW_FLEET_SECONDS} s a CreateFleet",
    }


def share(memory: int) -> float:
    """The share of a vCPU that a function with so much memory (MiB) has."""
    return min(1.0, memory / _FULL_VCPU)


def in_new_process(function: str, nodes: int, pods: int, *, slow: bool = False) -> dict[str, float]:
    """As :func:`measure`, in a new process; ``imported`` is MiB of a process that only imported the handler."""
    environ = {**os.environ, **function_sizes.RUNTIME, PAGE_SECONDS: str(SLOW_PAGE_SECONDS if slow else 0)}
    program = f"import functions.{function}.handler, pathlib; print(pathlib.Path('/proc/self/status').read_text())"
    imported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environ)
    command = [sys.executable, "-m", "bench.function_resources", function, str(nodes), str(pods), str(slow)]
    process = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    measured: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
    return {**measured, "imported": _status_bytes("VmRSS", imported.stdout) / MIB}


def measure(function: str, nodes: int, pods: int, *, slow: bool = False) -> dict[str, float]:
    """MiB above the state before, processor seconds and elapsed seconds of the function's first invocation.

    ``warm_seconds`` and ``warm_elapsed`` are the second's. All without the processor time of the local AWS, but with
    its waiting where EC2 is ``slow``.
    """
    handler = importlib.import_module(f"functions.{function}.handler")
    delays = {"CreateFleet": SLOW_FLEET_SECONDS, "DescribeInstances": SLOW_DESCRIBE_SECONDS} if slow else {}
    with stub_account.account(
        nodes, pods, with_catalog=function != function_sizes.CATALOG, ec2_seconds=delays
    ) as environ:
        at = first_turn()
        if function in DESCRIBING:
            stub_account.launch(n for n in range(nodes) if is_asked_about(n, nodes, at))
        if function == function_sizes.TERMINATION:
            _delete(environ)
        aws_seconds = _timed_aws()
        context = stub_account.context(function, seconds=function_sizes.SIZES[function].timeout)
        before, began = resident_before(), time.monotonic()
        clock = runtime.Runtime(environ=environ, now=lambda: at + timedelta(seconds=time.monotonic() - began))
        with runtime.using(clock):
            seconds, elapsed = _invoke(handler, EVENTS[function](0), context, aws_seconds)
            mib = (peak() - before) / MIB
            again = _invoke(handler, EVENTS[function](1), context, aws_seconds) if function in GROWING else (0.0, 0.0)
    return {
        "mib": mib,
        "seconds": seconds,
        "elapsed": elapsed,
        "warm_seconds": again[0],
        "warm_elapsed": again[1],
    }


def first_turn() -> datetime:
    """A moment of the last half hour at which the first portion of instances has its turn."""
    now = datetime.now(UTC)
    return now - timedelta(minutes=int(now.timestamp() // 60) % _MOST_PORTIONS, seconds=now.second)


def is_asked_about(number: int, nodes: int, at: datetime, lasts: int = _MINUTES) -> bool:
    """Whether an invocation of the next minutes describes the instance; the local AWS is too slow for all of many."""
    turns = {Portion.of(nodes, at=at + timedelta(minutes=minutes)) for minutes in range(lasts)}
    return number < 2 * BATCH_NODES or any(portion.has(f"{number:x}") for portion in turns)


def _timed_aws() -> list[float]:
    """The processor seconds of the local AWS so far, which go on."""
    seconds = [0.0]

    def spent(of_call: float, _: str) -> None:
        seconds[0] += of_call

    Interceptor.__call__ = local_aws.timed(Interceptor.__call__, spent)  # type: ignore[method-assign]
    return seconds


def _invoke(handler: Any, event: dict[str, Any], context: Any, aws_seconds: list[float]) -> tuple[float, float]:
    """Processor seconds and elapsed seconds, without the local AWS's processor time."""
    began, began_at, aws_before = time.process_time(), time.perf_counter(), aws_seconds[0]
    handler.handle(event, context)
    of_aws = aws_seconds[0] - aws_before
    return time.process_time() - began - of_aws, time.perf_counter() - began_at - of_aws


def _tick(_number: int) -> dict[str, Any]:
    return stub_account.batch([stub_account.scheduled()])


def scheduled_sweep(_number: int) -> dict[str, Any]:
    """The event of a sweep."""
    return stub_account.scheduled()


def _warnings(number: int) -> dict[str, Any]:
    first = number * BATCH_NODES
    return stub_account.batch([_warning(n) for n in range(first, first + BATCH_NODES)])


def _warning(number: int) -> dict[str, Any]:
    return {
        "version": "0",
        "id": f"w-{number}",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "source": "aws.ec2",
        "account": "123456789012",
        "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "region": "us-east-1",
        "resources": [f"arn:aws:ec2:us-east-1a:instance/i-{number:017x}"],
        "detail": {"instance-id": f"i-{number:017x}", "instance-action": "terminate"},
    }


def _delete(environ: Mapping[str, str]) -> None:
    with runtime.using(runtime.Runtime(environ=environ)):
        client = connect(read(TerminationSettings, environ))
        for number in range(BATCH_NODES):
            client.delete(resources.NODE_CLAIMS.path(f"claim-{number}"), uid=f"claim-{number}")


def _drains(_number: int) -> dict[str, Any]:
    keys = [f"claim-{n}" for n in range(BATCH_NODES)]
    detail = {"cluster": stub_account.CLUSTER, "keys": keys}
    message = {**stub_account.scheduled(), "source": hints.FUNCTIONS, "detail-type": hints.DRAIN, "detail": detail}
    return stub_account.batch([message])


EVENTS: dict[str, Callable[[int], dict[str, Any]]] = {
    function_sizes.PROVISIONER: _tick,
    function_sizes.LIFECYCLE: scheduled_sweep,
    function_sizes.DISRUPTION: scheduled_sweep,
    function_sizes.TERMINATION: _drains,
    function_sizes.INTERRUPTION: _warnings,
    function_sizes.CATALOG: scheduled_sweep,
    function_sizes.BUFFERS: _tick,
    function_sizes.NODE_GROUPS: scheduled_sweep,
}
_WORK = {
    function_sizes.PROVISIONER: "sweep with 100 pending pods",
    function_sizes.LIFECYCLE: "sweep; every NodeClaim is compared with EC2",
    function_sizes.DISRUPTION: "sweep; the consolidation search uses half of the timeout by design",
    function_sizes.TERMINATION: f"drain of {BATCH_NODES} nodes",
    function_sizes.INTERRUPTION: f"{BATCH_NODES} interrupted nodes in one batch",
    function_sizes.CATALOG: "refresh of a whole Region",
    function_sizes.NODE_GROUPS: "sweep over the cluster's node groups, of which there are none",
    function_sizes.BUFFERS: "list of the CapacityBuffers, of which there are none",
}


def resident_before() -> float:
    """Resident bytes after freed memory was returned; resets the peak."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _status_bytes("VmRSS")


def peak() -> float:
    """The most resident bytes since then."""
    return _status_bytes("VmHWM")


def _status_bytes(name: str, status: str = "") -> float:
    match = re.search(rf"^{name}:\s+(\d+) kB$", status or _STATUS.read_text(encoding="ascii"), re.MULTILINE)
    assert match, name
    return int(match[1]) * 1024


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), slow=sys.argv[4] == str(True))))
