"""How much memory and time each function takes on a large cluster; infra/function_sizes.py is based on it.

Each handler runs in a process of its own, as a first invocation does, against a canned Kubernetes API in another
process and a local AWS in its own. Memory is that of a process that has only imported the handler, and what the peak
while it runs is above what was there before; the local AWS's answers count too, so it errs upwards. Time is the
processor time of the whole invocation, the local AWS's part left out, at the processor share that the function's memory
buys (1769 MiB is one vCPU). What is waited for (the API server, EC2) is not in it.
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
from functions.termination.settings import TerminationSettings
from infra import function_sizes
from local.aws.interceptor import Interceptor
from shared import hints, runtime
from shared.cluster import resources
from shared.cluster.connect import connect
from shared.settings import read

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CLUSTERS = ((1_000, 20_000), (5_000, 100_000))
"""Nodes and pods; the latter is as large as EKS clusters that Karpenter is known to run."""
FEW = 100
"""Nodes of one batch: warned at once, or told to drain."""
_FULL_VCPU = 1769
_MIB = 1 << 20
_STATUS = Path("/proc/self/status")


def run() -> list[dict[str, str]]:
    """A row a function and size of cluster."""
    rows = []
    for nodes, pods in CLUSTERS:
        for function in function_sizes.FUNCTIONS:
            size = function_sizes.SIZES[function]
            found = _in_own_process(function, nodes, pods)
            imported, seconds = found["imported"], found["seconds"]
            share = min(1.0, size.memory / _FULL_VCPU)
            rows.append(
                {
                    "figure": f"{function}, {nodes:,} nodes / {pods:,} pods",
                    "asked": f"below {size.memory} MiB, {size.timeout} s",
                    "measured": f"{imported + found['mib']:.0f} MiB, {seconds / share:.1f} s",
                    "how": f"{imported:.0f} MiB are imported; {seconds:.2f} s of a whole vCPU; {_HOW[function]}",
                }
            )
    return rows


def measure(function: str, nodes: int, pods: int) -> dict[str, float]:
    """MiB above what is there before, and processor seconds, of the function's first invocation."""
    handler = importlib.import_module(f"functions.{function}.handler")
    answering = [0.0]
    answer = Interceptor.__call__

    @functools.wraps(answer)
    def timed(*args: Any, **more: Any) -> Any:  # noqa: ANN401 (botocore's)
        began = time.thread_time()
        try:
            return answer(*args, **more)
        finally:
            answering[0] += time.thread_time() - began

    with stub_account.account(nodes, pods, stocked=function != function_sizes.CATALOG) as environ:
        if function in (function_sizes.LIFECYCLE, function_sizes.TERMINATION, function_sizes.INTERRUPTION):
            stub_account.launch(nodes)
        if function == function_sizes.TERMINATION:
            _delete(environ)
        event = _EVENTS[function]()
        Interceptor.__call__ = timed  # type: ignore[method-assign]
        before = _settled()
        began = time.process_time()
        with runtime.using(runtime.Runtime(environ=environ)):
            handler.handle(event, stub_account.context(function, seconds=function_sizes.SIZES[function].timeout))
        seconds = time.process_time() - began - answering[0]
        return {"mib": (_peak() - before) / _MIB, "seconds": seconds}


def _tick() -> dict[str, Any]:
    return stub_account.batch([stub_account.scheduled()])


def _schedule() -> dict[str, Any]:
    return stub_account.scheduled()


def _warnings() -> dict[str, Any]:
    return stub_account.batch([_warning(n) for n in range(FEW)])


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
        for number in range(FEW):
            client.delete(resources.NODE_CLAIMS.path(f"claim-{number}"), uid=f"claim-{number}")


def _drains() -> dict[str, Any]:
    keys = [f"claim-{n}" for n in range(FEW)]
    detail = {"cluster": stub_account.CLUSTER, "keys": keys}
    told = {**stub_account.scheduled(), "source": hints.FUNCTIONS, "detail-type": hints.DRAIN, "detail": detail}
    return stub_account.batch([told])


_EVENTS: dict[str, Callable[[], dict[str, Any]]] = {
    function_sizes.PROVISIONER: _tick,
    function_sizes.LIFECYCLE: _schedule,
    function_sizes.DISRUPTION: _schedule,
    function_sizes.TERMINATION: _drains,
    function_sizes.INTERRUPTION: _warnings,
    function_sizes.CATALOG: _schedule,
}
_HOW = {
    function_sizes.PROVISIONER: "its sweep, 100 pods pending",
    function_sizes.LIFECYCLE: "its sweep; every claim is compared with EC2",
    function_sizes.DISRUPTION: "its sweep; the search for savings takes half of the time-out by design",
    function_sizes.TERMINATION: f"told to drain {FEW} nodes",
    function_sizes.INTERRUPTION: f"{FEW} nodes warned in one batch",
    function_sizes.CATALOG: "a refresh of a whole region",
}


def _settled() -> float:
    """Bytes that are there, after what is free has been given back; the peak is counted from here."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _of_status("VmRSS")


def _peak() -> float:
    return _of_status("VmHWM")


def _of_status(name: str, status: str = "") -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB$", status or _STATUS.read_text(encoding="ascii"), re.MULTILINE)
    assert found, name
    return int(found[1]) * 1024


def _in_own_process(function: str, nodes: int, pods: int) -> dict[str, float]:
    environ = {**os.environ, **function_sizes.RUNTIME}
    bare = f"import functions.{function}.handler, pathlib; print(pathlib.Path('/proc/self/status').read_text())"
    imported = subprocess.run([sys.executable, "-c", bare], capture_output=True, text=True, check=True, env=environ)
    command = [sys.executable, "-m", "bench.function_resources", function, str(nodes), str(pods)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {**found, "imported": _of_status("VmRSS", imported.stdout) / _MIB}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
