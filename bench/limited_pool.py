"""A NodePool near its limit: 1,000 pods that come over ten seconds, in any order, and 1,000 GiB of memory.

Each second a decision plans the pods that have come; its nodes are launched as the cheapest of their NodeClaims, and
count against the limit from then on. Nodes with much memory are the cheapest for each core, as spot prices have it at
times. The pods are those of workloads/a.yaml.
"""

from __future__ import annotations

import random
import statistics
from itertools import count
from typing import TYPE_CHECKING

from bench import consolidation as sample
from local.aws.backends import replaced
from shared.api import labels as names
from shared.api.nodepool import NodePool, NodePoolSpec
from shared.base.struct import Struct
from shared.instance_types.instance_type import InstanceType, Offering
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule
from shared.scheduling.solver import bins
from shared.snapshot import Snapshot

if TYPE_CHECKING:
    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim

PODS, SECONDS, LIMIT = 1000, 10, "1000Gi"
SEEDS = 20
TARGET = 740
_CPUS = (2, 4, 8, 16, 32)
_FAMILIES = {"c5": (2, 0.0175), "m5": (4, 0.0165), "r5": (8, 0.0160)}
"""Memory in GiB a vCPU, and USD per hour a vCPU."""
_GIB = 2**30


class Outcome(Struct, kw_only=True):
    """``running`` pods, the price of their nodes in USD per hour, and the nodes' memory in GiB."""

    running: int
    price: float
    memory: float


def instance_types() -> tuple[InstanceType, ...]:
    """Types of 2 to 32 vCPUs with 2, 4 and 8 GiB each, on spot."""
    return tuple(
        InstanceType(
            name=f"{family}.{cpu}x",
            labels={names.INSTANCE_TYPE: f"{family}.{cpu}x", names.ARCH: "amd64", names.OS: "linux"},
            capacity={"cpu": cpu * 1000, "memory": cpu * ratio * _GIB, "pods": 110},
            overhead={"cpu": 80, "memory": _GIB // 4},
            offerings=tuple(Offering(zone=z, capacity_type=names.SPOT, price=cpu * price) for z in sample.ZONES),
        )
        for family, (ratio, price) in _FAMILIES.items()
        for cpu in _CPUS
    )


def shapes() -> list[tuple[int, int]]:
    """Requests of the pods: milli-cpu and MiB."""
    return [(100 + 50 * d, 256 * (1 + d % 5)) for d in range(20) for _ in range(PODS // 20)]


def pool(limit: str) -> NodePool:
    """A NodePool with a limit of memory, or without limits."""
    return NodePool(metadata=sample.pool().metadata, spec=NodePoolSpec(limits={"memory": limit} if limit else {}))


def measure(seed: int, *, seconds: int = SECONDS, limit: str = LIMIT) -> Outcome:
    """What runs after a decision each second; 1: all pods come at once."""
    pods = [(f"p{i:04d}", shape) for i, shape in enumerate(shapes())]
    random.Random(seed).shuffle(pods)  # noqa: S311 (the order in which pods come)
    types = {t.name: t for t in instance_types()}
    numbers, price = count(), 0.0
    nodes: list[Node] = []
    claims: list[NodeClaim] = []
    node_of: dict[str, str] = {}
    for second in range(1, seconds + 1):
        arrived = pods[: len(pods) * second // seconds]
        snapshot = Snapshot(
            taken_at=sample.NOW,
            pods=tuple(sample.pod(name, shape, node_of.get(f"default/{name}", "")) for name, shape in arrived),
            nodes=tuple(nodes),
            node_claims=tuple(claims),
            node_pools=(pool(limit),),
        )
        decision = schedule(Problem(snapshot=snapshot, instance_types={"default": tuple(types.values())}))
        for node, keys in decision.existing_nodes.items():
            node_of.update(dict.fromkeys(keys, node))
        for planned in decision.new_node_claims:
            name, cheapest = f"n{next(numbers):04d}", planned.cheapest
            claim, node_ = sample.node_with_claim(
                name, types[cheapest.instance_type], cheapest.zone, cheapest.capacity_type
            )
            claims.append(claim)
            nodes.append(node_)
            node_of.update(dict.fromkeys(planned.pods, name))
            price += cheapest.price
    memory = sum(types[c.metadata.labels[names.INSTANCE_TYPE]].capacity["memory"] for c in claims) / _GIB
    return Outcome(running=len(node_of), price=price, memory=memory)


def run() -> list[dict[str, str]]:
    """Running pods with and without prices of limited resources."""
    priced = [measure(seed) for seed in range(SEEDS)]
    with replaced(bins, "_GREATEST", 0.0):
        unpriced = [measure(seed) for seed in range(SEEDS)]
    method = f"a decision a second, {SEEDS} orders of arrival; memory-rich types are the cheapest for each vCPU"
    return [
        {
            "measurement": f"limited pool, {PODS:,} pods over {SECONDS} s, {LIMIT} of memory: running pods",
            "target": f"at least {TARGET}",
            "result": f"{_range(priced)}; without prices of limits {_range(unpriced)}",
            "method": method,
        },
        {
            "measurement": "the same: USD per hour for each running pod, relative to without prices of limits",
            "target": "-",
            "result": f"{_price(priced) / _price(unpriced):.0%}",
            "method": method,
        },
    ]


def _range(outcomes: list[Outcome]) -> str:
    running = [o.running for o in outcomes]
    return f"{statistics.median(running):.0f} ({min(running)}-{max(running)})"


def _price(outcomes: list[Outcome]) -> float:
    return sum(o.price for o in outcomes) / sum(o.running for o in outcomes)
