"""What a snapshot costs: time and memory of listing, of catching up, and of a warm provisioner up to CreateFleet.

The API server is a canned one in a process of its own, so that what is measured is ours alone: processor time of the
reading process for lists, wall time for catching up (silence included), peak resident memory over that of a process
that has imported everything. Each figure is the median of several processes; beside a list's stands what fetching and
decoding the same bytes costs with nothing around it, in the same process, so that a busy machine shows.
"""

from __future__ import annotations

import contextlib
import gc
import json
import resource
import ssl
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import urllib3

from bench.stub_api_server import CHANGED, PAGE, PENDING, canned
from shared.api.kubernetes import Pod
from shared.cluster.connect import to_server
from shared.cluster.listing import Page
from shared.cluster.snapshot_reader import SnapshotReader

if TYPE_CHECKING:
    from collections.abc import Iterator

Row = dict[str, str]
Figures = dict[str, float]
PROCESSES = 3
CATCHES = 15
_MIB = 1 << 20


def measure(nodes: int, pods: int) -> Figures:
    """Processor seconds and MiB of a first snapshot, wall seconds of catching up, processor seconds of the bare work.

    ``seconds`` is the whole snapshot, ``bare_seconds`` only the pods' pages, fetched and decoded.
    """
    figures: Figures = {}
    with canned(nodes, pods) as (url, authority), contextlib.closing(to_server(url, authority, lambda: "t")) as client:
        client.get("/api/v1/namespaces")  # connected, and everything imported
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        reader = SnapshotReader(client)
        started = time.process_time()
        kept = reader.read(datetime.now(UTC))
        figures["seconds"] = time.process_time() - started
        figures["mib"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before) / _MIB
        assert len(kept.pods) == pods + PENDING
        caught = []
        for _ in range(CATCHES):
            wall, own = time.perf_counter(), time.process_time()
            reader.pods.read()
            caught.append((time.perf_counter() - wall, time.process_time() - own))
        figures["catch_up_seconds"], figures["catch_up_own_seconds"] = min(caught)
        figures["lists"] = reader.pods.lists
        figures["bare_seconds"] = _bare(url, authority, pods)
    return figures


def _bare(url: str, authority: str, pods: int) -> float:
    """Processor seconds of fetching and decoding the pods with urllib3 and msgspec alone, nothing kept or checked."""
    context = ssl.create_default_context(cadata=authority)
    decoder = msgspec.json.Decoder(Page[Pod])
    with urllib3.PoolManager(ssl_context=context) as pool, _uncollected():
        pool.request("GET", f"{url}/api/v1/namespaces")
        started = time.process_time()
        for number in range(-(-pods // PAGE)):
            answer = pool.request("GET", f"{url}/api/v1/pods?limit={PAGE}&continue={number or ''}")
            decoder.decode(answer.data)
        return time.process_time() - started


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _in_own_process(what: str, nodes: int, pods: int) -> list[Figures]:
    """What this module measures in a process that nothing else has touched."""
    command = [sys.executable, "-m", "bench.cluster_state", what, str(nodes), str(pods)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: list[Figures] = json.loads(done.stdout.splitlines()[-1])
    return found


def _median(figures: list[Figures]) -> Figures:
    return {name: statistics.median(one[name] for one in figures) for name in figures[0]}


def run() -> list[Row]:
    """The rows of this part."""
    rows: list[Row] = []

    def row(figure: str, asked: str, measured: str, how: str) -> None:
        rows.append({"figure": figure, "asked": asked, "measured": measured, "how": how})

    how = f"canned server in its own process over TLS, pods of 5 KB; processor time and peak RSS, median of {PROCESSES}"
    for nodes, pods, asked in ((1_000, 20_000, "≤ 0.5 s, ≤ 250 MB"), (5_000, 100_000, "≤ 3 s, ≤ 1.2 GB")):
        found = _median([one for _ in range(PROCESSES) for one in _in_own_process("snapshot", nodes, pods)])
        row(
            f"First snapshot of {nodes:,} nodes / {pods:,} pods",
            asked,
            f"{found['seconds']:.2f} s, {found['seconds'] / found['bare_seconds']:.1f} times the bare work on the "
            f"pods, {found['mib']:.0f} MiB",
            how,
        )
        row(
            f"Caught up on {CHANGED} changes ({pods:,} pods)",
            "≤ 100 ms" if nodes == 1_000 else "",
            f"{found['catch_up_seconds'] * 1000:.0f} ms, of which {found['catch_up_own_seconds'] * 1000:.0f} ms of work"
            + ("" if found["lists"] == 1 else " (listed again)"),
            f"wall time of a warm reader: the pods without a node, the watch, and the 50 ms of silence that end it; "
            f"best of {CATCHES}, because what else the machine does only adds to it",
        )
    runs = _in_own_process("provision", 1_000, 20_000)
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
        f"processor time of the handler's thread, the local AWS's answers left out; median of {len(runs)}",
    )
    return rows


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["snapshot", nodes, pods]:
            print(json.dumps([measure(int(nodes), int(pods))]))
        case ["provision", nodes, pods]:
            from bench import warm_provisioning  # what it imports would count as a reader's memory

            print(json.dumps(warm_provisioning.measure(int(nodes), int(pods))))
        case _:
            for one in run():
                print(" | ".join(one.values()))
