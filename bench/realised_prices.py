"""What becomes of a plan: planned, bought and realised price, rounds, and the time until pods run.

Three workloads and five random mixes, each applied at once to an empty cluster of the local world, as
``tenon demo --json`` measures them: until nothing changes any more.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from typing import TYPE_CHECKING, Any

import yaml
from rich.console import Console

from cli.demo.request import DemoRequest, Scale
from cli.demo.runner import Demo
from local.world import sample_objects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.demo.results import DemoResult

Json = dict[str, Any]
Row = dict[str, str]

SEEDS = (1, 2, 3, 4, 5)
_ZONE, _HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_HEAVY_MIB = (1024, 1536, 2048, 256, 512)
_CPU = (100, 250, 400, 500, 750, 1000, 1500, 2000)
_MEMORY_MIB = (128, 256, 512, 1024, 2048, 3072, 4096)
_TERMS = [{"tags": {"karpenter.sh/discovery": "CLUSTER"}}]


def run() -> list[Row]:
    """The rows of this part."""
    rows = [_row("a, 1,000 pods of 20 sizes", _measure(_a()))]
    rows.append(_row("b, the same with much memory", _measure(_b())))
    rows.append(_row("c, 300 pods, half with spread or anti-affinity", _measure(_c()), realised=1.05, rounds=2))
    mixes = [_measure(_mix(seed)) for seed in SEEDS]
    rows += [_row(f"mix of 1,000 pods, seed {seed}", result) for seed, result in zip(SEEDS, mixes, strict=True)]
    bought = [m.bought_price_per_hour / m.planned_price_per_hour for m in mixes]
    rows.append(
        {
            "measurement": "bought relative to planned, five mixes",
            "target": "at most 1.02",
            "result": f"{statistics.mean(bought):.4f} ({min(bought):.4f}-{max(bought):.4f})",
            "method": "the rows above",
        }
    )
    return rows


def _measure(workload: Iterator[Json]) -> DemoResult:
    objects = [*_pool(), *workload]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump_all(objects, file)
        file.flush()
        scale = Scale(deployment="*", steps=(objects[-1]["spec"]["replicas"],))
        request = DemoRequest(manifests=(file.name,), scales=(scale,), quiet=True, elapsed=time.process_time)
        return Demo(request, Console(quiet=True)).run()


def _row(measurement: str, result: DemoResult, *, realised: float = 1.03, rounds: int = 1) -> Row:
    planned, bought, paid = (
        result.planned_price_per_hour,
        result.bought_price_per_hour,
        result.realised_price_per_hour,
    )
    waits = (
        result.seconds_pending_to_running_p50,
        result.seconds_pending_to_running_p99,
        result.seconds_pending_to_running,
    )
    return {
        "measurement": f"{measurement}: planned, bought, realised",
        "target": f"bought ≤ 1.02 × planned, realised ≤ {realised} × bought, rounds ≤ {rounds}",
        "result": (
            f"${planned:.2f}, ${bought:.2f} (× {bought / planned:.3f}), ${paid:.2f} (× {paid / bought:.3f}); "
            f"50, 99, 100 % run after {', '.join('-' if w is None else f'{w:.0f}' for w in waits)} s; "
            f"rounds: {result.rounds}"
        ),
        "method": f"local world, {result.create_fleet_calls} CreateFleet calls",
    }


def _a() -> Iterator[Json]:
    for i in range(20):
        yield sample_objects.deployment(f"web-{i}", 50, {"cpu": f"{100 + 50 * i}m", "memory": f"{256 * (1 + i % 5)}Mi"})


def _b() -> Iterator[Json]:
    for i in range(20):
        yield sample_objects.deployment(f"web-{i}", 50, {"cpu": f"{100 + 50 * i}m", "memory": f"{_HEAVY_MIB[i % 5]}Mi"})


def _c() -> Iterator[Json]:
    rng = random.Random(0)  # noqa: S311 - the sizes of pods
    for i in range(30):
        name = f"mix-{i:02d}"
        selector = {"labelSelector": {"matchLabels": {"app": name}}}
        rules: Json = {}
        if i < 10:
            constraint = {"maxSkew": 1, "topologyKey": _ZONE, "whenUnsatisfiable": "DoNotSchedule", **selector}
            rules = {"topologySpreadConstraints": [constraint]}
        elif i < 15:
            term = {"topologyKey": _HOST, **selector}
            rules = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
        yield sample_objects.deployment(name, 10, _requests(rng), **rules)


def _mix(seed: int) -> Iterator[Json]:
    rng = random.Random(seed)  # noqa: S311 - the sizes of pods
    for i in range(20):
        yield sample_objects.deployment(f"mix-{i}", 50, _requests(rng))


def _requests(rng: random.Random) -> dict[str, str]:
    return {"cpu": f"{rng.choice(_CPU)}m", "memory": f"{rng.choice(_MEMORY_MIB)}Mi"}


def _pool() -> list[Json]:
    requirements = {
        "karpenter.sh/capacity-type": ["spot", "on-demand"],
        "kubernetes.io/arch": ["amd64"],
        "kubernetes.io/os": ["linux"],
        "karpenter.k8s.aws/instance-category": ["c", "m", "r"],
    }
    pool = sample_objects.node_pool(
        requirements, disruption={"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s"}
    )
    pool["spec"]["template"]["spec"]["requirements"].append(
        {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["2"]}
    )
    node_class = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "role": "TenonNodeRole-CLUSTER",
            "subnetSelectorTerms": _TERMS,
            "securityGroupSelectorTerms": _TERMS,
        },
    }
    return [node_class, pool]
