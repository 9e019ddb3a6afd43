"""What the NodePools of the month may launch: a dozen families and two with GPUs, at the local world's prices.

Allocatable resources are those of EKS nodes, less what DaemonSets request. Nodes with GPUs are a NodePool of their own,
with a taint, as most clusters have them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np

from local.world import catalog_cache
from shared.api import labels as names
from shared.api.kubernetes import NodeSelectorRequirement, Taint, Toleration
from shared.api.meta import ObjectMeta
from shared.api.nodeclass import EC2NodeClass
from shared.api.nodepool import Budget, Disruption, NodeClaimTemplate, NodePool, NodePoolSpec, TemplateSpec
from shared.base.struct import Struct, with_fields
from shared.instance_types.provider import build_instance_types

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from shared.instance_types.instance_type import InstanceType

START = datetime(2026, 3, 2, tzinfo=UTC)
"""A Monday."""
REGION = "us-east-1"
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
GPU = "nvidia.com/gpu"
RESOURCES = ("cpu", "memory", "pods", GPU)
"""The order of resources in vectors: milli-cpu, bytes, pods, GPUs."""
DEFAULT_POOL, GPU_POOL = "default", "gpu"
POOLS = (DEFAULT_POOL, GPU_POOL)
CONSOLIDATE_AFTER = timedelta(seconds=30)
BUDGET = "10%"
GPU_TAINT = Taint(key=GPU, effect="NoSchedule", value="true")
GPU_TOLERATION = Toleration(key=GPU, operator="Exists", effect="NoSchedule")
_FAMILIES = ("c5", "m5", "r5", "c6i", "m6i", "r6i", "c6a", "m6a", "r6a", "c7i", "m7i", "r7i")
_SIZES = ("large", "xlarge", "2xlarge")
_GPU_FAMILIES = ("g4dn", "g5")
_GPU_SIZES = ("xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "48xlarge")
_DAEMONS = {"cpu": 180, "memory": 300 * 2**20, "pods": 4}
"""Requests of DaemonSets on each node: network, proxy, logs and metrics."""


def size_of(cpu: int, memory: int, gpus: int) -> tuple[int, int, int, int]:
    """The vector of a pod's requests, of milli-cpu, MiB and GPUs."""
    return cpu, memory * 2**20, 1, gpus


class Offerings(Struct, kw_only=True, dict=True):
    """The instance types of one NodePool, as objects and as arrays.

    ``free`` has a row of :data:`RESOURCES` for each type. ``price`` is USD per hour by type, zone and capacity type,
    infinite where there is no such offering.
    """

    types: tuple[InstanceType, ...]
    capacity_types: tuple[str, ...]

    @cached_property
    def free(self) -> NDArray[np.int64]:
        """Allocatable by type."""
        return np.array([[t.allocatable.get(r, 0) for r in RESOURCES] for t in self.types], np.int64)

    @cached_property
    def price(self) -> NDArray[np.float64]:
        """By type, zone and capacity type."""
        price = np.full((len(self.types), len(ZONES), len(self.capacity_types)), np.inf)
        for i, type_ in enumerate(self.types):
            for o in type_.offerings:
                price[i, ZONES.index(o.zone), self.capacity_types.index(o.capacity_type)] = o.price
        return price

    @cached_property
    def row(self) -> Mapping[str, int]:
        """The row of each type by name."""
        return {t.name: i for i, t in enumerate(self.types)}

    def price_of(self, instance_type: str, zone: str, capacity_type: str) -> float:
        """USD per hour of an offering."""
        return float(self.price[self.row[instance_type], ZONES.index(zone), self.capacity_types.index(capacity_type)])


class Catalog(Struct, kw_only=True):
    """The NodePools, and the offerings of each by name."""

    pools: tuple[NodePool, ...]
    offerings: Mapping[str, Offerings]

    @property
    def instance_types(self) -> Mapping[str, tuple[InstanceType, ...]]:
        """The types by NodePool."""
        return {name: o.types for name, o in self.offerings.items()}


@cache
def _all_types() -> tuple[InstanceType, ...]:
    catalog = catalog_cache.load_or_fetch(region=REGION, seed=0, now=START)
    built = build_instance_types(catalog, EC2NodeClass(), None, zones=ZONES, unavailable=())
    return tuple(with_fields(t, overhead=_with_daemons(t.overhead)) for t in built)


def _with_daemons(overhead: Mapping[str, int]) -> dict[str, int]:
    return {r: overhead.get(r, 0) + _DAEMONS.get(r, 0) for r in {*overhead, *_DAEMONS}}


@cache
def month_catalog(capacity_types: tuple[str, ...]) -> Catalog:
    """The catalog whose NodePools launch these capacity types."""
    return Catalog(
        pools=(_pool(DEFAULT_POOL, capacity_types), _pool(GPU_POOL, capacity_types, taints=[GPU_TAINT])),
        offerings={
            DEFAULT_POOL: _offerings(_FAMILIES, _SIZES, capacity_types),
            GPU_POOL: _offerings(_GPU_FAMILIES, _GPU_SIZES, capacity_types),
        },
    )


def _offerings(families: Sequence[str], sizes: Sequence[str], capacity_types: tuple[str, ...]) -> Offerings:
    selected = {f"{family}.{size}" for family in families for size in sizes}
    types = tuple(
        with_fields(t, offerings=tuple(o for o in t.offerings if o.capacity_type in capacity_types))
        for t in _all_types()
        if t.name in selected
    )
    return Offerings(types=tuple(t for t in types if t.offerings), capacity_types=capacity_types)


def _pool(name: str, capacity_types: Sequence[str], taints: Sequence[Taint] = ()) -> NodePool:
    requirement = NodeSelectorRequirement(key=names.CAPACITY_TYPE, operator="In", values=list(capacity_types))
    after = f"{CONSOLIDATE_AFTER.total_seconds():.0f}s"
    return NodePool(
        metadata=ObjectMeta(name=name, uid=name),
        spec=NodePoolSpec(
            template=NodeClaimTemplate(spec=TemplateSpec(requirements=[requirement], taints=list(taints))),
            disruption=Disruption(consolidate_after=after, budgets=[Budget(nodes=BUDGET)]),
        ),
    )
