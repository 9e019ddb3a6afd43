"""The cluster in figures, each minute: for metrics, and for one log line with what would be too many of them."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from botocore.exceptions import ClientError

from shared import aws, metrics
from shared.api import labels as names
from shared.api.pods import is_provisionable, is_terminal, spec_requests, waited
from shared.api.quantity import QuantityError, parse_resources
from shared.instance_types import catalog_store
from shared.instance_types.catalog_store import CatalogMissingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from functions.lifecycle.context import Run
    from shared.api.kubernetes import Node, Pod, PodSpec
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.metrics import Metric
    from shared.snapshot import Snapshot

_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What there is now.

    ``cost`` in USD per hour; ``unpriced`` nodes are not in it. ``by_pool`` and ``by_type`` are (nodes, USD per hour),
    the latter by instance type and capacity type. Shares are 0 to 1 of what the nodes can allocate.
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


def tell(run: Run, snapshot: Snapshot) -> None:
    """Put the figures into the report, and say them in one line."""
    try:
        catalog = catalog_store.load(aws.s3(), run.settings.catalog_bucket, run.settings.cluster_name, max_age=None)
    except (CatalogMissingError, ClientError) as error:
        run.logger.warning("What nodes cost is not known", extra={"why": str(error)})
        catalog = None
    figures = run.report.figures = measure(snapshot, catalog, now=run.now)
    run.logger.info(
        "The cluster",
        extra={
            "nodes": figures.nodes,
            "usd_per_hour": round(figures.cost, 4),
            "nodes_without_price": figures.unpriced,
            "pods_pending": figures.pending,
            "by_pool": figures.by_pool,
            "by_type": figures.by_type,
        },
    )


def values(figures: Figures) -> dict[Metric, float]:
    """The figures as metrics."""
    return {
        metrics.NODES: figures.nodes,
        metrics.COST: figures.cost,
        metrics.CPU_UTILISATION: 100 * figures.cpu,
        metrics.MEMORY_UTILISATION: 100 * figures.memory,
        metrics.PENDING: figures.pending,
        metrics.OLDEST_PENDING_SECONDS: figures.oldest_pending,
    }


def measure(snapshot: Snapshot, catalog: InstanceTypeCatalog | None, *, now: datetime) -> Figures:
    """The figures of the nodes that belong to NodePools; without a catalog nothing has a price."""
    nodes = [n for n in snapshot.nodes if n.metadata.labels.get(names.NODEPOOL)]
    by_pool: dict[str, list[float]] = defaultdict(list)
    by_type: dict[str, list[float]] = defaultdict(list)
    unpriced = 0
    for node in nodes:
        price = catalog.price(node.metadata.labels) if catalog is not None else None
        unpriced += price is None
        labels = node.metadata.labels
        by_pool[labels[names.NODEPOOL]].append(price or 0.0)
        kind = f"{labels.get(names.INSTANCE_TYPE, '?')} {labels.get(names.CAPACITY_TYPE, '?')}"
        by_type[kind].append(price or 0.0)
    waits = [waited(p, now=now) for p in snapshot.pods if is_provisionable(p)]
    cpu, memory = _utilisation(nodes, snapshot.pods)
    return Figures(
        nodes=len(nodes),
        cost=sum(sum(prices) for prices in by_pool.values()),
        unpriced=unpriced,
        by_pool={name: (len(prices), round(sum(prices), 4)) for name, prices in sorted(by_pool.items())},
        by_type={name: (len(prices), round(sum(prices), 4)) for name, prices in sorted(by_type.items())},
        cpu=cpu,
        memory=memory,
        pending=len(waits),
        oldest_pending=max(waits, default=0.0),
    )


def _utilisation(nodes: Sequence[Node], pods: Iterable[Pod]) -> tuple[float, float]:
    """Shares of cpu and memory that unfinished pods request of these nodes."""
    mine = {n.metadata.name for n in nodes}
    had, asked = Counter[str](), Counter[str]()
    for node in nodes:
        with contextlib.suppress(QuantityError):  # a kubelet wrote it; what means nothing counts as nothing there
            had.update(parse_resources(node.status.allocatable))
    alike: Counter[bytes] = Counter()
    specs: dict[bytes, PodSpec] = {}
    for pod in pods:
        if pod.spec.node_name in mine and not is_terminal(pod):
            spec = pod.spec
            key = _encode((spec.containers, spec.init_containers, spec.overhead, spec.resources))
            alike[key] += 1
            specs[key] = spec
    for key, count in alike.items():
        with contextlib.suppress(QuantityError):
            asked.update({name: amount * count for name, amount in spec_requests(specs[key]).items()})
    return _share(asked["cpu"], had["cpu"]), _share(asked["memory"], had["memory"])


def _share(asked: int, had: int) -> float:
    return asked / had if had else 0.0
