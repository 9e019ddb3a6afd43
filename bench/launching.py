"""Launching: how soon the catalog is there, how soon the types of a class, and how few calls many pods take."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from local.world import World, shelf
from shared.api.nodeclass import EC2NodeClass
from shared.instances import catalog
from shared.instances.build import instance_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shared.instances.catalog import RawCatalog

_TIMES = 15
_PODS = 1000
_MANIFEST = Path(__file__).resolve().parent.parent / "cli" / "demo" / "manifests" / "spot-default.yaml"
_MEMORY_MIB = (256, 512, 1024, 1536, 2048)


def run() -> list[dict[str, str]]:
    """Rows of what was asked, measured and how."""
    with World() as world:
        raw = _catalog(world)
    stored = catalog.encode(raw)
    with tempfile.NamedTemporaryFile() as file:
        file.write(stored)
        file.flush()
        path = Path(file.name)
        read = _milliseconds(lambda: catalog.decode(path.read_bytes()))
    node_class = EC2NodeClass()
    zones = sorted(raw.zones)[:3]
    built = instance_types(raw, node_class, None, zones=zones, unavailable=())
    build = _milliseconds(lambda: instance_types(raw, node_class, None, zones=zones, unavailable=()))
    load = "read and decoded from disk, without S3's own time"
    rows = [
        _row("catalog, cold start", "under 400 ms", f"{read[0]:.0f} ms (first), {len(stored) // 1024} KiB", load),
        _row("catalog, again", "under 100 ms", f"{statistics.median(read):.0f} ms", f"{load}; median of {_TIMES}"),
        _row(
            "types of one class",
            "",
            f"{statistics.median(build):.0f} ms for {len(built)} types",
            f"labels, allocatable and offerings in 3 zones; median of {_TIMES}",
        ),
    ]
    for deployments, asked in ((1, "at most 3"), (20, "at most 10")):
        calls, nodes, seconds = _launches(deployments)
        rows.append(
            _row(
                f"CreateFleet calls, {_PODS} pods of {deployments} Deployment{'s' if deployments > 1 else ''}",
                asked,
                str(calls),
                f"local world, {nodes} nodes, all pods running after {seconds:.0f} s of cluster time",
            )
        )
    return rows


def _catalog(world: World) -> RawCatalog:
    now = datetime.now(UTC)
    kept = shelf.find(region=world.region, seed=world.seed, now=now)
    if kept is None:
        raise RuntimeError("the local world keeps no catalog")
    return kept


def _launches(deployments: int) -> tuple[int, int, float]:
    """CreateFleet calls, nodes, and seconds until all pods run."""
    with World() as world:
        pool, node_class, _ = (d for d in yaml.safe_load_all(_MANIFEST.read_text().replace("CLUSTER", world.cluster)))
        pool["spec"]["requirements"] = [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]}
        ]
        world.apply([pool, node_class])
        world.run_for(timedelta(seconds=30))
        world.apply(_workloads(deployments))
        start = world.clock.now()
        world.run_until(lambda: len(world.pods(phase="Running")) == _PODS, limit=timedelta(minutes=20))
        calls = Counter(call.operation for call in world.aws.calls.all)["CreateFleet"]
        return calls, len(world.nodes()), (world.clock.now() - start).total_seconds()


def _workloads(deployments: int) -> Iterable[dict[str, Any]]:
    for i in range(deployments):
        labels = {"app": f"web-{i}"}
        requests = {"cpu": f"{500 if deployments == 1 else 100 + 50 * i}m", "memory": f"{_MEMORY_MIB[(i + 2) % 5]}Mi"}
        container = {"name": "web", "image": "x", "resources": {"requests": requests}}
        yield {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": f"web-{i}"},
            "spec": {
                "replicas": _PODS // deployments,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }


def _milliseconds(work: Callable[[], object]) -> list[float]:
    """How long each of several runs took, the first one first."""
    found = []
    for _ in range(_TIMES):
        began = time.perf_counter()
        work()
        found.append((time.perf_counter() - began) * 1000)
    return found


def _row(figure: str, asked: str, measured: str, how: str) -> dict[str, str]:
    return {"figure": figure, "asked": asked, "measured": measured, "how": how}
