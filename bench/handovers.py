"""How long from a pending pod to its NodeClaim while the relay function hands over every few minutes.

The relay function's invocations end after three minutes instead of fourteen, so that handovers are frequent. A pod that
needs a node of its own comes every few seconds and an old one goes, so nodes join, become empty and leave all the time.
Seconds are those of the local cluster's clock, on which work takes its processor time. Lambda's cold starts and a
vCPU's share at 128 MiB aren't in it.
"""

from __future__ import annotations

import statistics
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from functions.relay import tenure
from infra import function_sizes
from local.aws.backends import replaced
from local.kubernetes import kinds
from local.world import Options, World, sample_objects

if TYPE_CHECKING:
    from datetime import datetime

    from local.kubernetes.objects import Change

PODS = 200
INTERVAL = timedelta(seconds=11)
_LIFETIME = timedelta(minutes=3)
_KEPT = 10
_NUMBER = "example.com/number"
MEDIAN_SECONDS, PERCENTILE_SECONDS = 1.5, 4.0


class _Latencies:
    """When pods and NodeClaims were created, on the world's clock."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.pods: list[datetime] = []
        self.claims: list[datetime] = []
        self._seen: set[str] = set()
        world.store.subscribe(self._note)

    def _note(self, change: Change) -> None:
        times = {"Pod": self.pods, "NodeClaim": self.claims}.get(change.kind.kind)
        uid = change.object["metadata"]["uid"]
        if times is not None and uid not in self._seen:
            self._seen.add(uid)
            times.append(self._world.clock.now())


def measure(count: int = PODS) -> tuple[list[float], int]:
    """Seconds from each pod to its NodeClaim, and how many invocations of the relay ended."""
    requirements = {
        "karpenter.k8s.aws/instance-cpu": ["2"],
        "karpenter.k8s.aws/instance-category": ["c", "m", "r"],
        _NUMBER: [str(number) for number in range(count)],
    }
    options = Options(elapsed=time.process_time, latencies=None, context={"relay": "function"})
    seconds: list[float] = []
    with replaced(tenure, "LIFETIME", _LIFETIME), World(options=options) as world:
        world.apply([sample_objects.node_class(world), sample_objects.node_pool(requirements)])
        world.run_until(lambda: world.is_watched)
        latencies = _Latencies(world)
        for number in range(count):
            pods, claims = len(latencies.pods), len(latencies.claims)
            # No pod may have the node of one that went.
            own_node = {_NUMBER: str(number)}
            world.apply(sample_objects.deployment(f"web-{number}", 1, {"cpu": "1200m"}, nodeSelector=own_node))
            if number >= _KEPT:
                world.store.delete(kinds.DEPLOYMENTS, f"web-{number - _KEPT}", namespace="default")
            world.run_for(INTERVAL)
            seconds.append((latencies.claims[claims] - latencies.pods[pods]).total_seconds())
        relays = [i for i in world.aws.functions.invocations if i.function == function_sizes.RELAY]
    return seconds, [i.result for i in relays].count({"relay": "ended"})


def run() -> list[dict[str, str]]:
    """The median and the 99th percentile."""
    seconds, handovers = measure()
    method = f"{len(seconds)} pods through {handovers} handovers; the local cluster's clock"
    percentile = statistics.quantiles(seconds, n=100)[-1]
    return [
        _row("median", MEDIAN_SECONDS, statistics.median(seconds), method),
        _row("99th percentile", PERCENTILE_SECONDS, percentile, method),
    ]


def _row(name: str, target: float, seconds: float, method: str) -> dict[str, str]:
    measurement = f"pending pod to NodeClaim with the relay function, {name}"
    return {"measurement": measurement, "target": f"at most {target} s", "result": f"{seconds:.2f} s", "method": method}
