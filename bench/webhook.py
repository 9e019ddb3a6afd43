"""The webhook function: what a new pod waits for, and how much later than with the relay it gets its node.

The latencies are cluster time of local clusters without nodes, to which five pods come at several seconds of the minute
between two sweeps. For memory and processor time the real handler runs in a process of its own, as on Lambda, with a
stub of SQS in another thread. Pods of 5 KB are reviewed. Processor time is that of a whole vCPU; at 256 MiB Lambda
gives 0.145 of one (1,769 MiB are one).
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from bench.cost_model import FULL_VCPU
from bench.stub_aws import run_program, stub_aws
from infra import function_sizes
from local.faults import Fault
from local.world import World, sample_objects
from local.world.options import Options
from shared.api import labels
from shared.base import hints

if TYPE_CHECKING:
    from collections.abc import Mapping

POD_BYTES = 5_000
PODS = 5
MOMENTS = tuple(range(3, 60, 9))
"""Seconds after a sweep."""
_PATH = "path"
_PROGRAM = """
import json, re, sys, time
began = time.process_time()
import functions.webhook.handler as handler
imported = time.process_time()
event = json.loads(sys.stdin.read())
def seconds(times, forget):
    spent = time.process_time()
    for _ in range(times):
        if forget:
            handler.runtime.current().cache.pop(handler._LAST_BATCH, None)
        assert handler.handle(event, None)["statusCode"] == 200
    return (time.process_time() - spent) / times
first = seconds(1, True)
handler.BATCH_SECONDS = 10 ** 6
review, message = seconds(2000, False), seconds(200, True)
status = open("/proc/self/status").read()
peak = int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) / 1024
print()
print(json.dumps({"mib": peak, "start": imported - began, "first": first, "review": review, "message": message}))
"""


def run() -> list[dict[str, str]]:
    """A row for memory, the start, a review, and a review that sends a message."""
    measured = measure()
    memory = function_sizes.SIZES[function_sizes.WEBHOOK].memory
    share = memory / FULL_VCPU

    def spent(name: str) -> str:
        return f"{1000 * measured[name]:.2f} ms of a vCPU, {1000 * measured[name] / share:.1f} ms at {memory} MiB"

    return [
        {
            "measurement": "webhook, memory",
            "target": f"{memory} MiB",
            "result": f"{measured['mib']:.0f} MiB",
            "method": "the process's peak",
        },
        {
            "measurement": "webhook, cold start",
            "target": "-",
            "result": f"{measured['start']:.2f} s of a vCPU, {measured['first'] / share:.2f} s for the first review",
            "method": "imports and the client of SQS, with a whole vCPU on Lambda; the first review has its share",
        },
        {
            "measurement": "webhook, a review",
            "target": "10 ms",
            "result": spent("review"),
            "method": f"pods of {POD_BYTES:,} bytes, 2,000 of them; the message of these two seconds is sent",
        },
        {
            "measurement": "webhook, a review with a message",
            "target": "-",
            "result": spent("message"),
            "method": "the first pod of two seconds; without the round trip to SQS",
        },
        *_latency_rows(),
    ]


def _latency_rows() -> list[dict[str, str]]:
    method = f"{PODS} pods in a cluster without nodes, at {len(MOMENTS)} moments of the minute; median and range"
    rows = []
    for mode, is_lost in (("function", False), ("webhook", False), ("webhook", True)):
        name = f"relay={mode}{', unreachable' if is_lost else ''}"
        pairs = [latencies(mode, moment, is_lost=is_lost) for moment in MOMENTS]
        for target, seconds in zip(("NodeClaim", "all running"), zip(*pairs, strict=True), strict=True):
            result = f"{statistics.median(seconds):.1f} s ({min(seconds):.1f}-{max(seconds):.1f})"
            rows.append(
                {"measurement": f"{name}: new pods to {target}", "target": "-", "result": result, "method": method}
            )
    return rows


def latencies(mode: str, moment: int, *, is_lost: bool = False) -> tuple[float, float]:
    """Seconds from new pods, ``moment`` seconds after a sweep, to the first NodeClaim and until all of them run."""
    options = Options(context={"relay": mode}, elapsed=time.process_time, latencies=None)
    with World(seed=moment, options=options) as world:
        if is_lost:
            world.faults.inject(lambda point: point.service == "webhook", Fault(disconnect="before"), times=1_000)
        world.apply(_pool(world))
        world.run_for(timedelta(minutes=3))
        swept = len(_sweeps(world))
        world.run_until(lambda: len(_sweeps(world)) > swept)
        world.run_for(timedelta(seconds=moment))
        began = world.clock.now()
        world.apply([sample_objects.deployment("web", PODS, {"cpu": "1"})])
        world.run_until(lambda: len(world.pods(phase="Running")) == PODS)
        claimed = world.timeline.of("claim created")[0].at
        return (claimed - began).total_seconds(), (world.clock.now() - began).total_seconds()


def _sweeps(world: World) -> list[object]:
    functions = world.aws.functions.invocations
    return [i for i in functions if (i.function, i.trigger) == (function_sizes.PROVISIONER, hints.SCHEDULED)]


def _pool(world: World) -> list[dict[str, Any]]:
    return [sample_objects.node_class(world), sample_objects.node_pool({labels.CAPACITY_TYPE: ["spot", "on-demand"]})]


def measure() -> dict[str, float]:
    """MiB, and processor seconds of the start, the first review, another one, and one that sends a message."""
    event = {"rawPath": f"/{_PATH}", "body": json.dumps(_review()), "isBase64Encoded": False}
    with stub_aws(_sent) as url:
        environ = {
            "TENON_PROVISIONING_QUEUE_URL": f"{url}/123456789012/q.fifo",
            "TENON_WEBHOOK_DIGEST": hashlib.sha256(_PATH.encode()).hexdigest(),
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        }
        return run_program(_PROGRAM, url, environ, stdin=json.dumps(event))


def _review() -> dict[str, Any]:
    metadata = {"name": "web-1", "namespace": "default", "annotations": {"filling": "x" * POD_BYTES}}
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "operation": "CREATE",
        "namespace": "default",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def _sent(body: Mapping[str, Any]) -> dict[str, str]:
    """SQS's answer to SendMessage."""
    digest = hashlib.md5(body["MessageBody"].encode(), usedforsecurity=False).hexdigest()
    return {"MessageId": "1", "MD5OfMessageBody": digest}
