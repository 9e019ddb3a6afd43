"""The main flows on a real control plane, in real time: launch, removal, interruption, drain, API server away.

Nodes are Ready 30 to 40 s after their launch. The API server, scheduler and controllers are upstream's, built by Go,
and the functions run on this machine. ``python -m bench.real_flows drain`` measures one flow and prints its rows as
JSON.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

from bench.real import READY
from local.kubernetes import kinds
from local.real import binary
from local.real.cluster import RealControlPlane
from local.real.go_build import go
from local.world import Options, World, sample_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

Row = dict[str, str]
PODS = 50
REPLICAS = 120
AWAY = timedelta(seconds=10)
MOST_EVICTIONS = 1.1
_REQUESTS = {"cpu": "500m", "memory": "512Mi"}
_CONCURRENCY = 8
_LIMIT = timedelta(minutes=3)
_CREATED = 201


def run() -> list[Row]:
    """The rows of this part; one that says so where there is no Go to build a control plane."""
    if not go():
        return [{"measurement": "a real control plane", "result": "left out: Go is not installed"}]
    return [row for flow in FLOWS.values() for row in flow()]


def launch_and_removal() -> list[Row]:
    """Pending pods get nodes; when the pods are gone, so are the nodes."""
    with _world() as (world, plane):
        began = world.clock.now()
        world.apply(sample_objects.deployment("web", PODS, _REQUESTS))
        _run_until(world, lambda: _running(world) == PODS)
        fleet = _first_call(world, "CreateFleet", began)
        running = sorted(_seconds(began, event.at) for event in world.timeline.of("pod running"))
        nodes = len(world.nodes())
        emptied = world.clock.now()
        world.scale("default", "web", 0)
        _run_until(world, lambda: not (world.nodes() or world.claims() or world.instances()))
        terminated = _seconds(emptied, _first_call(world, "TerminateInstances", emptied))
        gone = _seconds(emptied, world.clock.now())
        return [
            _row(f"pending → CreateFleet, {PODS} pods", f"{_seconds(began, fleet):.1f} s", world, plane),
            _row(
                f"pending → running, {PODS} pods",
                f"half {running[PODS // 2 - 1]:.0f} s, all {running[PODS - 1]:.0f} s, on {nodes} nodes",
                world,
                plane,
            ),
            _row(
                f"empty → gone, {nodes} nodes at once",
                f"{terminated:.0f} s until TerminateInstances, {gone:.0f} s until nodes, NodeClaims and instances are "
                "gone",
                world,
                plane,
            ),
        ]


def interruption() -> list[Row]:
    """EC2 interrupts all spot instances at once: their pods run elsewhere before the instances are gone."""
    count = 30
    with _world() as (world, plane):
        world.apply(sample_objects.budget("web", count // 3))
        world.apply(sample_objects.deployment("web", count, _REQUESTS))
        _run_until(world, lambda: _running(world) == count)
        interrupted = [i for i in world.instances() if i.lifecycle == "spot"]
        names = {i.private_dns_name for i in interrupted}
        fewest = [count]
        world.interrupt_spot([i.id for i in interrupted])
        warned = world.clock.now()

        def all_moved() -> bool:
            running = world.pods(phase="Running")
            fewest.append(sum("deletionTimestamp" not in pod["metadata"] for pod in running))
            return sum(pod["spec"]["nodeName"] not in names for pod in running) == count

        _run_until(world, all_moved)
        moved = _seconds(warned, world.clock.now())
        fleet = _seconds(warned, _first_call(world, "CreateFleet", warned))
        return [
            _row(
                f"spot interruption of {len(names)} nodes with {count} pods",
                f"CreateFleet after {fleet:.1f} s; all pods run elsewhere after {moved:.0f} s of 120; never fewer than "
                f"{min(fewest)} ran",
                world,
                plane,
                target=f"{count - count // 3} pods run, by their PodDisruptionBudget",
            )
        ]


def drain() -> list[Row]:
    """All nodes under a StatefulSet are deleted at once."""
    stateful = sample_objects.deployment("db", REPLICAS, {"cpu": "250m", "memory": "256Mi"})
    stateful |= {"kind": "StatefulSet"}
    stateful["spec"] |= {"serviceName": "db", "podManagementPolicy": "Parallel"}
    with _world() as (world, plane):
        world.apply(stateful)
        _run_until(world, lambda: _running(world) == REPLICAS)
        before = {pod["metadata"]["uid"] for pod in world.pods()}
        nodes = {node["metadata"]["name"]: node["metadata"]["uid"] for node in world.nodes()}
        deleted = world.clock.now()
        for name in nodes:
            world.store.delete(kinds.NODES, name)
        _run_until(
            world, lambda: sum(p["metadata"]["uid"] not in before for p in world.pods(phase="Running")) == REPLICAS
        )
        moved = _seconds(deleted, world.clock.now())
        _run_until(world, lambda: not {n["metadata"]["uid"] for n in world.nodes()} & set(nodes.values()))
        gone = _seconds(deleted, world.clock.now())
        evictions = [r for r in plane.log.requests if r.path.endswith("/eviction")]
        succeeded = sum(request.status == _CREATED for request in evictions)
        return [
            _row(
                f"a StatefulSet of {REPLICAS} pods whose {len(nodes)} nodes are deleted",
                f"all pods run again after {moved:.0f} s, the nodes are gone after {gone:.0f} s; {len(evictions)} "
                f"evictions, {succeeded} granted: {len(evictions) / REPLICAS:.2f} per pod",
                world,
                plane,
                target=f"{MOST_EVICTIONS} evictions per pod",
            )
        ]


def outage() -> list[Row]:
    """The API server answers nothing while nodes are being launched."""
    with _world() as (world, plane):
        began = world.clock.now()
        world.apply(sample_objects.deployment("web", PODS, _REQUESTS))
        _run_until(world, lambda: bool(world.claims()))
        away = contextlib.ExitStack()
        away.enter_context(plane.suspended())
        stopped = world.clock.now()
        # In a thread: the world's loop waits for functions, and these for the API server.
        timer = threading.Timer(AWAY.total_seconds(), away.close)
        timer.start()
        try:
            _run_until(world, lambda: _running(world) == PODS)
        finally:
            timer.join()
        back, now = stopped + AWAY, world.clock.now()
        launches = sum(c.operation == "CreateFleet" for c in world.aws.calls.all)
        return [
            _row(
                f"the API server is away for {AWAY.total_seconds():.0f} s while nodes are launched for {PODS} pods",
                f"all pods run {_seconds(began, now):.0f} s after they were created, {_seconds(back, now):.0f} s after "
                f"the API server is back; {launches} CreateFleet calls",
                world,
                plane,
            )
        ]


FLOWS: dict[str, Callable[[], list[Row]]] = {
    "launch": launch_and_removal,
    "interruption": interruption,
    "drain": drain,
    "outage": outage,
}


@contextlib.contextmanager
def _world() -> Iterator[tuple[World, RealControlPlane]]:
    """A cluster whose NodePool of spot and on-demand instances is Ready."""
    plane = RealControlPlane()
    options = Options(version=plane.kubernetes, concurrency=_CONCURRENCY, timing=READY, control_plane=lambda: plane)
    with World(options=options) as world:
        world.apply(sample_objects.node_class(world))
        requirements = {
            "karpenter.sh/capacity-type": ["spot", "on-demand"],
            "kubernetes.io/arch": ["amd64"],
            "karpenter.k8s.aws/instance-category": ["c", "m", "r"],
            "karpenter.k8s.aws/instance-cpu": ["4", "8"],
        }
        disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}
        world.apply(sample_objects.node_pool(requirements, disruption=disruption))
        world.run_until(lambda: _is_ready(world), limit=_LIMIT)
        yield world, plane


def _is_ready(world: World) -> bool:
    pools = world.store.list(world.store.kind("karpenter.sh/v1", "NodePool"))
    conditions = [c for pool in pools for c in pool.get("status", {}).get("conditions") or []]
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _run_until(world: World, condition: Callable[[], bool]) -> None:
    world.run_until(condition, limit=_LIMIT)


def _running(world: World) -> int:
    return len(world.pods(phase="Running"))


def _first_call(world: World, operation: str, since: datetime) -> datetime:
    return min(call.at for call in world.aws.calls.all if call.operation == operation and call.at >= since)


def _seconds(since: datetime, until: datetime) -> float:
    return (until - since).total_seconds()


def _row(measurement: str, result: str, world: World, plane: RealControlPlane, *, target: str = "") -> Row:
    return {
        "measurement": measurement,
        "target": target,
        "result": result,
        "method": f"real time, kube {binary.kubernetes_version(plane.kubernetes)}; {len(plane.log.requests)} requests, "
        f"{len(world.denied_requests())} denied; {len(world.aws.functions.invocations)} invocations, "
        f"{len(world.failures())} failed; {len(world.dead_letters())} dead letters",
    }


def main(names: Sequence[str]) -> None:
    """Measure the named flows and print their rows, one line of JSON each."""
    for name in names or FLOWS:
        for row in FLOWS[name]():
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
