"""Records a day of another autoscaler: ``python -m tests.e2e.shadow.record_day`` writes day.json.xz.

The other autoscaler is the greedy search of ``bench/scale_in.py`` in a local world: it speaks Karpenter's API, packs by
the same rules, and consolidates whatever saves most at the moment. Deployments follow a working day, with bursts at
night. Two nodes of a managed node group are scaled by nobody. Recorded are all states of pods, nodes and NodeClaims
from 18:00 to 18:00, and the other objects at the start.
"""

from __future__ import annotations

import json
import lzma
import math
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.scale_in import greedy
from local.kubernetes import kinds
from local.world import Options, World, sample_objects
from shared.api import labels as names
from tests.e2e.node_groups import managed_node_group

if TYPE_CHECKING:
    from local.kubernetes.objects import Change, Obj

FILE = Path(__file__).with_name("day.json.xz")
BEGIN = datetime(2026, 3, 2, 18, tzinfo=UTC)
LENGTH = timedelta(hours=24)
_WARM_UP = timedelta(hours=1)
_STEP = timedelta(minutes=20)
_RECORDED = frozenset({"Pod", "Node", "NodeClaim"})
_AT_START = ("DaemonSet", "EC2NodeClass", "Namespace", "NodePool", "PodDisruptionBudget")
_DEPLOYMENTS = {
    "web": (40, {"cpu": "400m", "memory": "512Mi"}),
    "api": (24, {"cpu": "700m", "memory": "1Gi"}),
    "cache": (12, {"cpu": "300m", "memory": "3Gi"}),
    "queue": (20, {"cpu": "250m", "memory": "256Mi"}),
}
"""Replicas at noon, and requests of a pod."""


def main() -> None:
    """Record it."""
    states: list[tuple[str, str, Obj | None]] = []
    options = Options(start=BEGIN - _WARM_UP, elapsed=time.process_time, hostility=None)
    with World(seed=7, options=options) as world, greedy():
        managed_node_group(world, "system", desired=2, minimum=2, maximum=2)
        world.apply(_objects(world))
        while (now := world.clock.now()) < BEGIN:
            _scale(world, now)
            world.run_for(min(_STEP, BEGIN - now))
        initial = [
            _slim(obj)
            for kind in world.store.served()
            if kind.kind in _RECORDED or kind.kind in _AT_START
            for obj in world.store.list(kind)
        ]
        world.store.subscribe(lambda change: _record(states, change, world.clock.now()))
        while (now := world.clock.now()) < BEGIN + LENGTH:
            _scale(world, now)
            world.run_for(min(_STEP, BEGIN + LENGTH - now))
            print(f"{world.clock.now():%H:%M} {len(world.nodes())} nodes, {len(world.pods())} pods", flush=True)  # noqa: T201
    document = {"begin": BEGIN.isoformat(), "initial": initial, "states": states}
    FILE.write_bytes(lzma.compress(json.dumps(document, separators=(",", ":")).encode(), preset=9))
    print(f"{FILE}: {len(states)} states, {FILE.stat().st_size} bytes")  # noqa: T201


def _objects(world: World) -> list[dict[str, Any]]:
    requirements = {
        names.CAPACITY_TYPE: [names.SPOT, names.ON_DEMAND],
        names.ARCH: ["amd64"],
        names.OS: ["linux"],
        f"{names.INSTANCE_PREFIX}category": ["c", "m", "r"],
        f"{names.INSTANCE_PREFIX}generation": ["5", "6"],
    }
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1m"}
    return [
        sample_objects.node_class(world),
        sample_objects.node_pool(requirements, disruption=disruption),
        sample_objects.daemon_set("agent", {"cpu": "50m", "memory": "64Mi"}),
        sample_objects.budget("web", "25%"),
        *(sample_objects.deployment(name, 0, requests) for name, (_, requests) in _DEPLOYMENTS.items()),
        sample_objects.deployment("burst", 0, {"cpu": "900m", "memory": "1Gi"}),
    ]


def _scale(world: World, now: datetime) -> None:
    """The load at that time: a working day, and a burst in the last third of three hours of the night."""
    day = 0.25 + 0.75 * max(0.0, math.sin(math.pi * (now.hour + now.minute / 60 - 6) / 14))
    for name, (most, _) in _DEPLOYMENTS.items():
        replicas = round(most * day)
        if world.store.get(kinds.DEPLOYMENTS, name, namespace="default")["spec"]["replicas"] != replicas:
            world.scale("default", name, replicas)
    burst = 16 if now.hour in {1, 3, 22} and now.minute >= 40 else 0
    if world.store.get(kinds.DEPLOYMENTS, "burst", namespace="default")["spec"]["replicas"] != burst:
        world.scale("default", "burst", burst)


def _record(states: list[tuple[str, str, Obj | None]], change: Change, now: datetime) -> None:
    if change.kind.kind not in _RECORDED:
        return
    metadata = change.object["metadata"]
    key = f"{change.kind.kind}/{metadata.get('namespace', '')}/{metadata['name']}"
    obj = None if change.type == "DELETED" else _slim(change.object)
    if obj is not None and change.previous is not None and obj == _slim(change.previous):
        return  # a heartbeat
    states.append((now.isoformat(), key, obj))


def _slim(obj: Obj) -> Obj:
    """The object without what no decision reads: instance types that a NodeClaim could have had, annotations, logs."""
    dropped = {"managedFields", "resourceVersion"} | ({"annotations"} if obj["kind"] in _RECORDED else set())
    metadata = {k: v for k, v in obj["metadata"].items() if k not in dropped}
    unread = {"images", "containerStatuses", "addresses", "nodeInfo", "daemonEndpoints", "podIP", "podIPs", "hostIP"}
    status = {k: v for k, v in obj.get("status", {}).items() if k not in unread}
    if "conditions" in status:
        kept = ("type", "status", "reason", "lastTransitionTime", "observedGeneration")
        status["conditions"] = [{k: c[k] for k in kept if k in c} for c in status["conditions"]]
    slim = {**obj, "metadata": metadata, **({"status": status} if status else {})}
    if obj["kind"] == "NodeClaim":
        slim["spec"] = {k: v for k, v in obj["spec"].items() if k not in {"requirements", "resources"}}
    return slim


if __name__ == "__main__":
    main()
