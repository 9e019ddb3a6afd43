"""Metrics of the whole cluster, each minute: nodes, cost, utilization and pending pods.

Figures by NodePool and by instance type go to one log line instead: each would be a metric with its own price.
``measure`` is pure.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import msgspec
from botocore.exceptions import ClientError

from shared.api import labels as names
from shared.api.pods import is_provisionable, is_terminal, spec_requests, waited
from shared.api.quantity import QuantityError, parse_resources
from shared.base import metrics
from shared.base.struct import Struct
from shared.instance_types import catalog_store
from shared.instance_types.catalog_store import CatalogMissingError
from shared.instance_types.overlays import node_price, ready_overlays

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger
    from mypy_boto3_s3 import S3Client

    from shared.api.kubernetes import Node, Pod, PodSpec
    from shared.base.metrics import Metric
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.snapshot import Snapshot

_encode = msgspec.msgpack.Encoder().encode


class ClusterMetrics(Struct, kw_only=True):
    """The cluster's state now.

    ``cost`` is in USD per hour, without the ``unpriced`` nodes. ``by_pool`` and ``by_type`` are (nodes, USD per hour),
    the latter by instance type and capacity type. ``cpu`` and ``memory`` are requested shares of allocatable, 0 to 1.
    ``oldest_pending`` is in seconds.
    """

    nodes: int
    cost: float
    unpriced: int
    by_pool: Mapping[str, tuple[int, float]]
    by_type: Mapping[str, tuple[int, float]]
    cpu: float
    memory: float
    pending: int
    oldest_pending: float


def report(s3: S3Client, catalog_bucket: str, snapshot: Snapshot, *, logger: Logger, now: datetime) -> ClusterMetrics:
    """Measure the cluster, and log it in one line."""
    try:
        catalog = catalog_store.load(s3, catalog_bucket, max_age=None)
    except (CatalogMissingError, ClientError) as error:
        logger.warning("The cost of nodes is unknown", extra={"why": str(error)})
        catalog = None
    cluster = measure(snapshot, catalog, now=now)
    logger.info(
        "Cluster metrics",
        extra={
            "nodes": cluster.nodes,
            "usd_per_hour": round(cluster.cost, 4),
            "nodes_without_price": cluster.unpriced,
            "pods_pending": cluster.pending,
            "by_pool": cluster.by_pool,
            "by_type": cluster.by_type,
        },
    )
    return cluster


def values(cluster: ClusterMetrics) -> dict[Metric, float]:
    """The values of CloudWatch metrics."""
    return {
        metrics.NODES: cluster.nodes,
        metrics.COST: cluster.cost,
        metrics.CPU_UTILISATION: 100 * cluster.cpu,
        metrics.MEMORY_UTILISATION: 100 * cluster.memory,
        metrics.PENDING: cluster.pending,
        metrics.OLDEST_PENDING_SECONDS: cluster.oldest_pending,
    }


def measure(snapshot: Snapshot, catalog: InstanceTypeCatalog | None, *, now: datetime) -> ClusterMetrics:
    """The metrics of the nodes that belong to NodePools; without a catalog no node has a price."""
    nodes = [n for n in snapshot.nodes if n.metadata.labels.get(names.NODEPOOL)]
    overlays = ready_overlays(snapshot.node_overlays)
    known_prices = [node_price(catalog, n.metadata.labels, overlays) if catalog is not None else None for n in nodes]
    by_pool: dict[str, list[float]] = defaultdict(list)
    by_type: dict[str, list[float]] = defaultdict(list)
    for node, price in zip(nodes, known_prices, strict=True):
        labels = node.metadata.labels
        by_pool[labels[names.NODEPOOL]].append(price or 0.0)
        instance_type = f"{labels.get(names.INSTANCE_TYPE, '?')} {labels.get(names.CAPACITY_TYPE, '?')}"
        by_type[instance_type].append(price or 0.0)
    waits = [waited(p, now=now) for p in snapshot.pods if is_provisionable(p)]
    cpu, memory = _utilization(nodes, snapshot.pods)
    return ClusterMetrics(
        nodes=len(nodes),
        cost=sum(sum(prices) for prices in by_pool.values()),
        unpriced=known_prices.count(None),
        by_pool=_counts_and_costs(by_pool),
        by_type=_counts_and_costs(by_type),
        cpu=cpu,
        memory=memory,
        pending=len(waits),
        oldest_pending=max(waits, default=0.0),
    )


def _counts_and_costs(prices: Mapping[str, Sequence[float]]) -> dict[str, tuple[int, float]]:
    return {name: (len(group), round(sum(group), 4)) for name, group in sorted(prices.items())}


def _utilization(nodes: Sequence[Node], pods: Iterable[Pod]) -> tuple[float, float]:
    """Shares of these nodes' allocatable cpu and memory that unfinished pods request."""
    node_names = {n.metadata.name for n in nodes}
    allocatable, requested = Counter[str](), Counter[str]()
    for node in nodes:
        with contextlib.suppress(QuantityError):  # a kubelet wrote it; an invalid quantity counts as zero
            allocatable.update(parse_resources(node.status.allocatable))
    pod_counts: Counter[bytes] = Counter()
    specs: dict[bytes, PodSpec] = {}
    for pod in pods:
        if pod.spec.node_name in node_names and not is_terminal(pod):
            spec = pod.spec
            key = _encode((spec.containers, spec.init_containers, spec.overhead, spec.resources))
            pod_counts[key] += 1
            specs[key] = spec
    for key, count in pod_counts.items():
        with contextlib.suppress(QuantityError):
            requested.update({name: amount * count for name, amount in spec_requests(specs[key]).items()})
    return _share(requested["cpu"], allocatable["cpu"]), _share(requested["memory"], allocatable["memory"])


def _share(requested: int, allocatable: int) -> float:
    return requested / allocatable if allocatable else 0.0
