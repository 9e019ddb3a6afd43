"""Launches: times of the catalog and of instance types, and how few CreateFleet calls many pods need."""

from __future__ import annotations

import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from local.world import Options, World, catalog_cache, sample_objects
from shared.api.nodeclass import EC2NodeClass
from shared.instance_types import catalog
from shared.instance_types.provider import build_instance_types
from shared.launch.fleet.rate_limit import BURST, REFILL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shared.instance_types.catalog import InstanceTypeCatalog

_RUNS = 15
_PODS = 1000
_THROTTLED = 200
_OPTIONS = Options(elapsed=time.process_time, latencies=None)
"""In these local clusters work takes processor time, so that other load on the machine is not measured."""
_MANIFEST = Path(__file__).resolve().parent.parent / "cli" / "demo" / "manifests" / "spot-default.yaml"
_MEMORY_MIB = (256, 512, 1024, 1536, 2048)


def run() -> list[dict[str, str]]:
    """The rows of this part."""
    with World() as world:
        raw = _catalog(world)
    stored = catalog.FORM.encode(raw)
    with tempfile.NamedTemporaryFile() as file:
        file.write(stored)
        file.flush()
        path = Path(file.name)
        read = _milliseconds(lambda: catalog.FORM.decode(path.read_bytes()))
    node_class = EC2NodeClass()
    zones = sorted(raw.zones)[:3]
    built = build_instance_types(raw, node_class, None, zones=zones, unavailable=())
    build = _milliseconds(lambda: build_instance_types(raw, node_class, None, zones=zones, unavailable=()))
    load = "read and decoded from disk, without S3's own time; processor time"
    rows = [
        _row("catalog, cold start", "under 400 ms", f"{read[0]:.0f} ms (first), {len(stored) // 1024} KiB", load),
        _row("catalog, warm", "under 100 ms", f"{statistics.median(read):.0f} ms", f"{load}; median of {_RUNS}"),
        _row(
            "instance types of one node class",
            "",
            f"{statistics.median(build):.0f} ms for {len(built)} types",
            f"labels, allocatable and offerings in 3 zones; median of {_RUNS}",
        ),
    ]
    for deployments, target in ((1, "at most 4"), (20, "at most 10")):
        calls, planned, nodes, seconds = _launches(deployments)
        rows.append(
            _row(
                f"CreateFleet calls, {_PODS} pods of {deployments} Deployment{'s' if deployments > 1 else ''}",
                target,
                str(calls),
                f"local world, {nodes} nodes ({planned} in the first decision), all pods running after {seconds:.0f} s "
                "of cluster time",
            )
        )
    return [*rows, _throttled()]


def _catalog(world: World) -> InstanceTypeCatalog:
    now = datetime.now(UTC)
    cached = catalog_cache.load(region=world.region, seed=world.seed, now=now)
    if cached is None:
        raise RuntimeError("the local world has no catalog")
    return cached


def _launches(deployments: int) -> tuple[int, int, int, float]:
    """CreateFleet calls, NodeClaims of the first decision, nodes, and seconds until all pods run."""
    with World(options=_OPTIONS) as world:
        _make_pending(world, deployments)
        start = world.clock.now()
        world.run_until(lambda: len(world.pods(phase="Running")) == _PODS, limit=timedelta(minutes=20))
        launched = min(h.at for h in world.timeline.of("claim launched"))
        planned = sum(h.at < launched for h in world.timeline.of("claim created"))
        calls = len(_fleet_calls(world))
        return calls, planned, len(world.nodes()), (world.clock.now() - start).total_seconds()


def _throttled() -> dict[str, str]:
    """The rate of CreateFleet calls while EC2 throttles them, and whether all pods run in the end."""
    with World(options=_OPTIONS) as world:
        world.faults.throttle("ec2", "CreateFleet", times=_THROTTLED)
        _make_pending(world, 20)
        start = world.clock.now()
        world.run_until(lambda: len(world.pods(phase="Running")) == _PODS, limit=timedelta(hours=2))
        minutes = (world.clock.now() - start).total_seconds() / 60
        calls_at = _fleet_calls(world)
    # Of all intervals between two calls, the one nearest to the token bucket's limit.
    busiest = max(
        (j - i + 1) / (BURST + REFILL * (calls_at[j] - calls_at[i]).total_seconds())
        for i in range(len(calls_at))
        for j in range(i, len(calls_at))
    )
    return _row(
        f"CreateFleet calls, {_THROTTLED} of them throttled",
        f"at most {BURST:.0f} at once, {REFILL:.0f} a second",
        f"{len(calls_at)}; {busiest:.0%} of the budget in the busiest interval",
        f"local world, {_PODS} pods of 20 Deployments, all running after {minutes:.0f} minutes of cluster time",
    )


def _make_pending(world: World, deployments: int) -> None:
    """Make all pods pending, and then apply a NodePool."""
    pool, node_class, _ = (d for d in yaml.safe_load_all(_MANIFEST.read_text().replace("CLUSTER", world.cluster)))
    pool["spec"]["requirements"] = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]}
    ]
    world.apply([node_class, *_workloads(deployments)])
    world.run_for(timedelta(seconds=30))
    world.apply(pool)


def _fleet_calls(world: World) -> list[datetime]:
    return [call.at for call in world.aws.calls.all if call.operation == "CreateFleet"]


def _workloads(deployments: int) -> Iterable[dict[str, Any]]:
    for i in range(deployments):
        cpu = 500 if deployments == 1 else 100 + 50 * i
        requests = {"cpu": f"{cpu}m", "memory": f"{_MEMORY_MIB[(i + 2) % 5]}Mi"}
        yield sample_objects.deployment(f"web-{i}", _PODS // deployments, requests)


def _milliseconds(work: Callable[[], object]) -> list[float]:
    """Processor time of several runs, in milliseconds, in their order."""
    milliseconds = []
    for _ in range(_RUNS):
        began = time.process_time()
        work()
        milliseconds.append((time.process_time() - began) * 1000)
    return milliseconds


def _row(measurement: str, target: str, result: str, method: str) -> dict[str, str]:
    return {"measurement": measurement, "target": target, "result": result, "method": method}
