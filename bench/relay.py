"""Memory and processor time of the relay function, by the size of the cluster.

The real handler runs in a process of its own for half a minute, with a stub Kubernetes API and stubs of EKS and
EventBridge in other processes. The process has the modules of the bundle (infra/bundle/bundling.py empties the
Kubernetes client's package). Memory is the process's peak, with Python, boto3 and the first list. Processor time is
that of a whole vCPU; at 128 MiB Lambda gives 0.072 of one (1,769 MiB are one).
"""

from __future__ import annotations

import base64
import importlib.util
from typing import TYPE_CHECKING, Any

from bench.cost_model import FULL_VCPU
from bench.stub_api_server import stub_api_server
from bench.stub_aws import run_program, stub_aws
from infra import function_sizes
from shared.cluster.client import MAX_PAGE_SIZE, PAGE_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping

CLUSTERS = ((100, 5_000), (1_000, 20_000), (5_000, 100_000))
"""Nodes and pods."""
SECONDS = 30
_PROGRAM = """
import json, re, sys, time, types
package = types.ModuleType("kubernetes"); package.__path__ = [PATH]; sys.modules["kubernetes"] = package
from datetime import timedelta
import functions.relay.handler as handler
from functions.relay import tenure
from relay.relay import Relay
from relay.watcher import Watcher
tenure.LIFETIME = timedelta(seconds=SECONDS); tenure.HANDOVER_WINDOW = timedelta()
imported = time.process_time()
events = [0]; settled = []
handle, step = Watcher._handle_event, Relay.step
def counted(self, event):
    events[0] += 1
    handle(self, event)
def stepped(self, now):
    if not settled and self.is_settled:
        settled.append((time.process_time(), events[0]))
    return step(self, now)
Watcher._handle_event, Relay.step = counted, stepped
class Context:
    function_name = "relay"; memory_limit_in_mb = 128; invoked_function_arn = "arn"; aws_request_id = "request-1"
assert handler.handle({}, Context()) == {"relay": "ended"}
status = open("/proc/self/status").read()
peak = int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) / 1024
(at, before), = settled
print(json.dumps({"mib": peak, "imports": imported, "start": at - imported,
    "event": (time.process_time() - at) / max(events[0] - before, 1), "events": events[0] - before}))
"""


def run() -> list[dict[str, str]]:
    """A row for each size of cluster, of memory, of the start, and of an event."""
    rows = []
    share = function_sizes.SIZES[function_sizes.RELAY].memory / FULL_VCPU
    for nodes, pods in CLUSTERS:
        measured = measure(nodes, pods)
        event = measured["event"]
        cluster = f"{nodes:,} nodes / {pods:,} pods"
        rows += [
            {
                "measurement": f"relay, memory, {cluster}",
                "target": "128 MiB" if pods == CLUSTERS[0][1] else "-",
                "result": f"{measured['mib']:.0f} MiB",
                "method": f"the process's peak; pods of 5 KB in pages of {PAGE_SIZE} to {MAX_PAGE_SIZE:,}",
            },
            {
                "measurement": f"relay, start, {cluster}",
                "target": "-",
                "result": f"{measured['start']:.2f} s of a vCPU, {measured['start'] / share:.0f} s at 128 MiB",
                "method": f"from the imports ({measured['imports']:.2f} s of a vCPU) to the end of the first lists",
            },
            {
                "measurement": f"relay, a watch event, {cluster}",
                "target": "-",
                "result": f"{1e6 * event:.0f} µs of a vCPU, {share / event:.0f} a second at 128 MiB",
                "method": f"{measured['events']:.0f} events of pods; with renewals, PutEvents and new watches",
            },
        ]
    return rows


def measure(nodes: int, pods: int) -> dict[str, float]:
    """MiB, processor seconds of imports, start and one event, and the number of events."""
    spec = importlib.util.find_spec("kubernetes")
    assert spec is not None
    paths = list(spec.submodule_search_locations or ())
    program = _PROGRAM.replace("[PATH]", repr(paths)).replace("SECONDS", str(SECONDS))
    environ = {**function_sizes.RELAY_RUNTIME, "TENON_EVENT_BUS_NAME": "tenon-demo"}
    with stub_api_server(nodes, pods) as (endpoint, authority):
        description = {
            "name": "demo",
            "arn": "arn:aws:eks:us-east-1:123456789012:cluster/demo",
            "endpoint": endpoint,
            "certificateAuthority": {"data": base64.b64encode(authority.encode()).decode()},
            "version": "1.34",
        }

        def answer(body: Mapping[str, Any]) -> dict[str, Any]:
            if "Entries" in body:  # PutEvents
                return {"FailedEntryCount": 0, "Entries": [{"EventId": "1"} for _ in body["Entries"]]}
            return {"cluster": description}

        with stub_aws(answer) as url:
            return run_program(program, url, environ)
