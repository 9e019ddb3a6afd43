"""Time and memory of a snapshot: listing, catching up by watches, and a warm provisioner up to CreateFleet.

The API server is a stub in its own process, so that only the reader is measured: processor time of lists, wall time of
catching up (with its wait for silence), and peak resident memory above that of a process that has imported everything.
Each value is the median of several processes. Next to a list's time is that of only fetching and decoding the same
bytes in the same process, which shows other load on the machine.
"""

from __future__ import annotations

import contextlib
import json
import resource
import ssl
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime

import msgspec
import urllib3

from bench.stub_api_server import CHANGED, PENDING, stub_api_server
from shared.api.kubernetes import Pod
from shared.base import runtime
from shared.cluster.client import MAX_PAGE_SIZE
from shared.cluster.connect import to_server
from shared.cluster.listing import Page
from shared.cluster.snapshot_reader import SnapshotReader

Row = dict[str, str]
Figures = dict[str, float]
PROCESSES = 3
CATCHES = 15
_MIB = 1 << 20


def measure(nodes: int, pods: int) -> Figures:
    """Processor seconds and MiB of a first snapshot, wall seconds of catching up, processor seconds of the baseline.

    ``seconds`` is the whole snapshot, ``baseline_seconds`` only fetching and decoding the pages of pods.
    """
    figures: Figures = {}
    with (
        stub_api_server(nodes, pods) as (url, authority),
        contextlib.closing(to_server(url, authority, lambda: "t")) as client,
    ):
        client.get("/api/v1/namespaces")  # connects, and imports everything
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        reader = SnapshotReader(client)
        started = time.process_time()
        snapshot = reader.read(datetime.now(UTC))
        figures["seconds"] = time.process_time() - started
        figures["mib"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before) / _MIB
        assert len(snapshot.pods) == pods + PENDING
        catch_ups = []
        for _ in range(CATCHES):
            wall, own = time.perf_counter(), time.process_time()
            reader.pods.read()
            catch_ups.append((time.perf_counter() - wall, time.process_time() - own))
        figures["catch_up_seconds"], figures["catch_up_own_seconds"] = min(catch_ups)
        figures["lists"] = reader.pods.lists
        figures["baseline_seconds"] = _baseline(url, authority, pods)
    return figures


def _baseline(url: str, authority: str, pods: int) -> float:
    """Processor seconds of fetching and decoding the pods with urllib3 and msgspec only."""
    context = ssl.create_default_context(cadata=authority)
    decoder = msgspec.json.Decoder(Page[Pod])
    with urllib3.PoolManager(ssl_context=context) as pool, runtime.gc_paused():
        pool.request("GET", f"{url}/api/v1/namespaces")
        started = time.process_time()
        for start in range(0, pods, MAX_PAGE_SIZE):
            answer = pool.request("GET", f"{url}/api/v1/pods?limit={MAX_PAGE_SIZE}&continue={start or ''}")
            decoder.decode(answer.data)
        return time.process_time() - started


def _in_new_process(part: str, nodes: int, pods: int) -> list[Figures]:
    """The results of this module in a new process."""
    command = [sys.executable, "-m", "bench.cluster_state", part, str(nodes), str(pods)]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    results: list[Figures] = json.loads(process.stdout.splitlines()[-1])
    return results


def _median(figures: list[Figures]) -> Figures:
    return {name: statistics.median(figures[name] for figures in figures) for name in figures[0]}


def run() -> list[Row]:
    """The rows of this part."""
    rows: list[Row] = []

    def row(measurement: str, target: str, result: str, method: str) -> None:
        rows.append({"measurement": measurement, "target": target, "result": result, "method": method})

    how = f"stub server in its own process over TLS, pods of 5 KB; processor time and peak RSS, median of {PROCESSES}"
    for nodes, pods, target in ((1_000, 20_000, "≤ 0.5 s, ≤ 250 MB"), (5_000, 100_000, "≤ 3 s, ≤ 1.2 GB")):
        median = _median([figures for _ in range(PROCESSES) for figures in _in_new_process("snapshot", nodes, pods)])
        row(
            f"First snapshot of {nodes:,} nodes / {pods:,} pods",
            target,
            f"{median['seconds']:.2f} s, {median['seconds'] / median['baseline_seconds']:.1f} times the baseline for "
            f"pods, {median['mib']:.0f} MiB",
            how,
        )
        row(
            f"Caught up on {CHANGED} changes ({pods:,} pods)",
            "≤ 100 ms" if nodes == 1_000 else "",
            f"{median['catch_up_seconds'] * 1000:.0f} ms, of which {median['catch_up_own_seconds'] * 1000:.0f} ms of "
            "processor time" + ("" if median["lists"] == 1 else " (listed again)"),
            f"wall time of a warm reader: pods without a node, the watch, and its final 50 ms of silence; "
            f"best of {CATCHES}, because other load only adds to it",
        )
    runs = _in_new_process("provision", 1_000, 20_000)
    warm = _median(runs)
    parts = ", ".join(
        f"{part} {warm[part] * 1000:.0f} ms"
        for part in ("snapshot", "resolved_pools", "schedule", "claims")
        if part in warm
    )
    row(
        f"Warm, 1,000 nodes / 20,000 pods, {PENDING} pending: from the message to CreateFleet",
        "≤ 0.5 s",
        f"{warm['all']:.2f} s ({parts})",
        f"processor time of the handler's thread, without the local AWS's time; median of {len(runs)}",
    )
    return rows


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["snapshot", nodes, pods]:
            print(json.dumps([measure(int(nodes), int(pods))]))
        case ["provision", nodes, pods]:
            from bench import warm_provisioning  # imported here: its imports would count as the reader's memory

            print(json.dumps(warm_provisioning.measure(int(nodes), int(pods))))
        case _:
            for figures in run():
                print(" | ".join(figures.values()))
