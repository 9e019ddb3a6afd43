"""Memory and time of each function for large clusters; infra/function_sizes.py is based on it.

Each handler runs in its own process, as a first invocation does, with a stub Kubernetes API in another process and a
local AWS in its own. Memory is that of a process that only imported the handler, plus the peak above the state before
the run; it includes the local AWS's responses, so it is an upper bound. Time is the processor time of the invocation
without the local AWS's part, at the processor share of the function's memory (1769 MiB is one vCPU). Waiting for the
API server and EC2 is not included, but in one row for the interruption function, whose timeout is short.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import json
import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import stub_account
from bench.stub_api_server import PAGE, PAGE_SECONDS
from functions.termination.settings import TerminationSettings
from infra import function_sizes
from local.aws.interceptor import Interceptor
from shared.base import hints, runtime
from shared.base.settings import read
from shared.cluster import resources
from shared.cluster.connect import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CLUSTERS = ((1_000, 20_000), (5_000, 100_000))
"""Nodes and pods. The larger one is as large as the largest known clusters with Karpenter."""
BATCH_NODES = 100
"""Nodes that are interrupted or drained in one batch."""
SLOW_PAGE_SECONDS = 0.05
"""An API server's time for a page of 500 pods, on top of the transfer."""
SLOW_FLEET_SECONDS = 10.0
"""A slow CreateFleet of type instant, which answers when its instances are launched."""
_FULL_VCPU = 1769
_MIB = 1 << 20
_STATUS = Path("/proc/self/status")


def run() -> list[dict[str, str]]:
    """A row for each function and cluster size."""
    rows = []
    for nodes, pods in CLUSTERS:
        for function in _EVENTS:
            size = function_sizes.SIZES[function]
            result = _in_new_process(function, nodes, pods)
            imported, seconds = result["imported"], result["seconds"]
            share = min(1.0, size.memory / _FULL_VCPU)
            rows.append(
                {
                    "measurement": f"{function}, {nodes:,} nodes / {pods:,} pods",
                    "target": f"below {size.memory} MiB, {size.timeout} s",
                    "result": f"{imported + result['mib']:.0f} MiB, {seconds / share:.1f} s",
                    "method": f"{imported:.0f} MiB for imports; {seconds:.2f} s of a whole vCPU; {_WORK[function]}",
                }
            )
    return [*rows, _interruption_with_waiting()]


def _interruption_with_waiting() -> dict[str, str]:
    """How long the first invocation takes after warnings, with the API server's and EC2's answers as slow as real ones.

    Only this function's timeout is shorter than all of that might take.
    """
    nodes, pods = CLUSTERS[-1]
    result = _in_new_process(
        function_sizes.INTERRUPTION, nodes, pods, page_seconds=SLOW_PAGE_SECONDS, fleet_seconds=SLOW_FLEET_SECONDS
    )
    return {
        "measurement": f"interruption with waiting, {nodes:,} nodes / {pods:,} pods",
        "target": f"below {function_sizes.SIZES[function_sizes.INTERRUPTION].timeout} s",
        "result": f"{result['elapsed']:.1f} s",
        "method": f"elapsed time; {SLOW_PAGE_SECONDS} s a page of {PAGE} objects, {SLOW_FLEET_SECONDS} s a CreateFleet",
    }


def measure(function: str, nodes: int, pods: int, *, fleet_seconds: float = 0) -> dict[str, float]:
    """MiB above the state before, processor seconds and elapsed seconds of the function's first invocation."""
    handler = importlib.import_module(f"functions.{function}.handler")
    aws_seconds = [0.0]
    answer = Interceptor.__call__

    @functools.wraps(answer)
    def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.thread_time()
        try:
            return answer(*args, **kwargs)
        finally:
            aws_seconds[0] += time.thread_time() - began

    with stub_account.account(
        nodes, pods, with_catalog=function != function_sizes.CATALOG, fleet_seconds=fleet_seconds
    ) as environ:
        if function in (function_sizes.LIFECYCLE, function_sizes.TERMINATION, function_sizes.INTERRUPTION):
            stub_account.launch(nodes)
        if function == function_sizes.TERMINATION:
            _delete(environ)
        event = _EVENTS[function]()
        Interceptor.__call__ = timed  # type: ignore[method-assign]
        before = _resident_before()
        began, began_at = time.process_time(), time.perf_counter()
        with runtime.using(runtime.Runtime(environ=environ)):
            handler.handle(event, stub_account.context(function, seconds=function_sizes.SIZES[function].timeout))
        seconds = time.process_time() - began - aws_seconds[0]
        elapsed = time.perf_counter() - began_at
        return {"mib": (_peak() - before) / _MIB, "seconds": seconds, "elapsed": elapsed}


def _tick() -> dict[str, Any]:
    return stub_account.batch([stub_account.scheduled()])


def _schedule() -> dict[str, Any]:
    return stub_account.scheduled()


def _warnings() -> dict[str, Any]:
    return stub_account.batch([_warning(n) for n in range(BATCH_NODES)])


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


def _drains() -> dict[str, Any]:
    keys = [f"claim-{n}" for n in range(BATCH_NODES)]
    detail = {"cluster": stub_account.CLUSTER, "keys": keys}
    message = {**stub_account.scheduled(), "source": hints.FUNCTIONS, "detail-type": hints.DRAIN, "detail": detail}
    return stub_account.batch([message])


_EVENTS: dict[str, Callable[[], dict[str, Any]]] = {
    function_sizes.PROVISIONER: _tick,
    function_sizes.LIFECYCLE: _schedule,
    function_sizes.DISRUPTION: _schedule,
    function_sizes.TERMINATION: _drains,
    function_sizes.INTERRUPTION: _warnings,
    function_sizes.CATALOG: _schedule,
    function_sizes.BUFFERS: _tick,
    function_sizes.NODE_GROUPS: _schedule,
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


def _resident_before() -> float:
    """Resident bytes after freed memory was returned; resets the peak."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _status_bytes("VmRSS")


def _peak() -> float:
    return _status_bytes("VmHWM")


def _status_bytes(name: str, status: str = "") -> float:
    match = re.search(rf"^{name}:\s+(\d+) kB$", status or _STATUS.read_text(encoding="ascii"), re.MULTILINE)
    assert match, name
    return int(match[1]) * 1024


def _in_new_process(
    function: str, nodes: int, pods: int, *, page_seconds: float = 0, fleet_seconds: float = 0
) -> dict[str, float]:
    environ = {**os.environ, **function_sizes.RUNTIME, PAGE_SECONDS: str(page_seconds)}
    program = f"import functions.{function}.handler, pathlib; print(pathlib.Path('/proc/self/status').read_text())"
    imported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environ)
    command = [sys.executable, "-m", "bench.function_resources", function, str(nodes), str(pods), str(fleet_seconds)]
    process = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    measured: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
    return {**measured, "imported": _status_bytes("VmRSS", imported.stdout) / _MIB}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), fleet_seconds=float(sys.argv[4]))))
