"""Karpenter's rules: first fit, and consolidation that replaces nodes whenever that is cheaper.

Scheduling (docs/facts/karpenter.md, section 3): pod by pod, the most cpu first, then the most memory; on existing
nodes, on the new nodes of the same decision with the fewest pods first, or on a further one. A new node keeps all
instance types that fit until the end, and is the cheapest of them. tests/unit/bench compares it with the re-enactment
that is checked against Karpenter's recorded decisions.

Disruption (section 5): empty nodes, then several nodes for at most one (binary search over those whose pods cost least
to evict, within budgets), then single nodes in the same order; the first that saves money wins. A replacement costs
less in each zone than the nodes that it replaces; one spot node is replaced by another only if 15 types are cheaper,
and several not by a type that one of them has, unless it is cheaper. Commands are validated after 15 s and carried out
side by side within the budgets. A cluster in which there is nothing to save isn't evaluated again for five minutes
unless it changes. It consolidates every five minutes, and again as soon as a command is started.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from bench.month.catalog import BUDGET, CONSOLIDATE_AFTER, POOLS, RESOURCES, ZONES
from bench.month.simulated_objects import Command, Launch, Placement
from shared.base.struct import MutableStruct, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from bench.month.catalog import Catalog, Offerings
    from bench.month.simulated_cluster import SimulatedCluster
    from bench.month.simulated_objects import SimulatedNode, SimulatedPod

MAX_CANDIDATES = 100
MIN_SPOT_TYPES = 15
_AFTER = int(CONSOLIDATE_AFTER.total_seconds())
_BUDGET = int(BUDGET.removesuffix("%")) / 100
_SPOT = "spot"
_UNCHANGED = 300
_TOLERANCE = 1e-9


class NewNode(MutableStruct):
    """A node that a decision opens: its pods, and the types and zones that it may still have."""

    pool: str
    used: NDArray[np.int64]
    types: NDArray[np.bool_]
    zones: NDArray[np.bool_]
    pods: list[SimulatedPod] = []


class FirstFit(Struct):
    """The row of the existing node by pod, the new nodes, and the pods that fit nowhere."""

    existing: Mapping[str, int]
    new: Sequence[NewNode]
    unscheduled: Sequence[str]


def first_fit(
    pods: Iterable[SimulatedPod],
    *,
    catalog: Catalog,
    rows: NDArray[np.int64],
    cluster: SimulatedCluster,
    counts: Mapping[str, NDArray[np.int64]],
) -> FirstFit:
    """Place the pods on the nodes in these rows of the cluster, in this order, and on new ones.

    ``counts`` are pods by zone of workloads with zone_spread; neither they nor the cluster are changed.
    """
    free = cluster.free[rows].copy()
    zones, pools = cluster.zone_indexes[rows], cluster.pool_indexes[rows]
    spread = {workload: c.copy() for workload, c in counts.items()}
    existing: dict[str, int] = {}
    new: list[NewNode] = []
    unscheduled: list[str] = []
    for pod in sorted(pods, key=lambda p: (-p.trace.cpu, -p.trace.memory, p.trace.created, p.trace.name)):
        allowed = pod.allowed_zones(spread)
        fits = (pools == POOLS.index(pod.pool)) & (free >= pod.size).all(1) & allowed[zones]
        if fits.any():
            i = int(fits.argmax())
            free[i] -= pod.size
            existing[pod.trace.name] = int(rows[i])
            _count(pod, spread, int(zones[i]))
            continue
        node = _on_new_node(pod, new, catalog, allowed, spread)
        if node is None:
            unscheduled.append(pod.trace.name)
    return FirstFit(existing, new, unscheduled)


def _count(pod: SimulatedPod, spread: dict[str, NDArray[np.int64]], zone: int) -> None:
    if pod.trace.zone_spread:
        spread.setdefault(pod.trace.workload, np.zeros(len(ZONES), np.int64))[zone] += 1


def _on_new_node(
    pod: SimulatedPod,
    new: list[NewNode],
    catalog: Catalog,
    allowed: NDArray[np.bool_],
    spread: dict[str, NDArray[np.int64]],
) -> NewNode | None:
    """The new node that takes the pod; None where not even an empty one can."""
    free = catalog.offerings[pod.pool].free
    new.sort(key=lambda n: len(n.pods))  # stable: of equal ones, as in the order before
    for node in new:
        if node.pool == pod.pool and _add(node, pod, free, allowed, spread):
            return node
    empty = NewNode(
        pod.pool, np.zeros(len(RESOURCES), np.int64), np.ones(len(free), np.bool_), np.ones(len(ZONES), np.bool_)
    )
    if not _add(empty, pod, free, allowed, spread):
        return None
    new.append(empty)
    return empty


def _add(
    node: NewNode,
    pod: SimulatedPod,
    free: NDArray[np.int64],
    allowed: NDArray[np.bool_],
    spread: dict[str, NDArray[np.int64]],
) -> bool:
    zones = node.zones & allowed
    used = node.used + pod.size
    types = node.types & (free >= used).all(1)
    if not zones.any() or not types.any():
        return False
    if pod.trace.zone_spread:
        # the zone with the fewest pods of the workload
        counts = spread.setdefault(pod.trace.workload, np.zeros(len(ZONES), np.int64))
        zone = min(np.flatnonzero(zones).tolist(), key=lambda z: (counts[z], z))
        zones = np.arange(len(ZONES)) == zone
        counts[zone] += 1
    node.used, node.types, node.zones = used, types, zones
    node.pods.append(pod)
    return True


def cheapest(node: NewNode, offerings: Offerings) -> tuple[Launch, float]:
    """The launch of the node's cheapest offering, and USD per hour of it."""
    price = np.where(node.types[:, None, None] & node.zones[None, :, None], offerings.price, np.inf)
    type_, zone, capacity = np.unravel_index(int(price.argmin()), price.shape)
    launch = Launch(
        offerings.types[type_].name,
        ZONES[zone],
        offerings.capacity_types[capacity],
        node.pool,
        tuple(p.trace.name for p in node.pods),
    )
    return launch, float(price[type_, zone, capacity])


class KarpenterRules:
    """Karpenter's decisions over one month."""

    is_concurrent = True
    interval = 300

    def __init__(self, *, consolidate_after: int = _AFTER) -> None:
        """``consolidate_after`` of the NodePools, in seconds."""
        self._after = consolidate_after
        self._nothing_at: tuple[int, int] | None = None
        """Time and version of the cluster in which there was nothing to save."""

    def place(self, cluster: SimulatedCluster, pods: Sequence[SimulatedPod]) -> Placement:
        """First fit over nodes that are booting and new ones: kube-scheduler has tried those that are ready."""
        nodes = (n for n in cluster.nodes.values() if not n.is_ready and not n.is_reserved)
        rows = np.array([n.row for n in nodes], np.int64)
        plan = first_fit(pods, catalog=cluster.catalog, rows=rows, cluster=cluster, counts=cluster.zone_counts)
        launches = tuple(cheapest(n, cluster.catalog.offerings[n.pool])[0] for n in plan.new)
        names = {n.row: n.name for n in cluster.nodes.values()}
        return Placement({pod: names[row] for pod, row in plan.existing.items()}, launches)

    def empty_nodes(self, cluster: SimulatedCluster) -> Sequence[str]:
        """Nodes that are empty for consolidateAfter, within budgets."""
        empty = [n for n in _candidates(cluster, self._after) if not n.pods]
        return [n.name for n in _within_budgets(cluster, empty)]

    def soft_taints(self, cluster: SimulatedCluster) -> Sequence[tuple[SimulatedNode, int]]:
        """None: Karpenter has no soft taints."""
        del cluster
        return ()

    def consolidate(self, cluster: SimulatedCluster) -> Command | None:
        """Several nodes for at most one, else a single one."""
        if self._nothing_at is not None:
            since, version = self._nothing_at
            if version == cluster.version and cluster.now < since + _UNCHANGED:
                return None
        candidates = sorted((n for n in _candidates(cluster, self._after) if n.pods), key=_disruption_cost)
        command = _several(cluster, candidates) or _single(cluster, candidates)
        self._nothing_at = (cluster.now, cluster.version) if command is None else None
        return command

    def validated(self, cluster: SimulatedCluster, command: Command) -> Command | None:
        """The command by another simulation; None where a node is no candidate any more, or nothing is saved."""
        current = {n.name: n for n in _candidates(cluster, self._after)}
        if not all(name in current for name in command.nodes):
            return None
        nodes = [current[name] for name in command.nodes]
        if len(_within_budgets(cluster, nodes)) < len(nodes):
            return None
        again = evaluate(cluster, nodes)
        return again if again is not None and len(again.launches) <= len(command.launches) else None


def _candidates(cluster: SimulatedCluster, after: int) -> list[SimulatedNode]:
    """The nodes that may be disrupted: ready for a while, and ``after`` seconds after the last pod came or went."""
    return [
        n
        for n in cluster.nodes.values()
        if n.is_ready and not n.is_leaving and not n.is_reserved and n.last_pod_event + after <= cluster.now
    ]


def _disruption_cost(node: SimulatedNode) -> tuple[float, str]:
    """The eviction cost of the pods: each 1, more with its priority. Nodes don't expire, so age doesn't count."""
    cost = sum(min(max(1 + p.trace.priority / 2**25, -10.0), 10.0) for p in node.pods.values())
    return cost, node.name


def _within_budgets(cluster: SimulatedCluster, nodes: Iterable[SimulatedNode]) -> list[SimulatedNode]:
    """The first of these nodes that each NodePool's budget allows now."""
    left = {}
    for pool in POOLS:
        ready = [n for n in cluster.nodes.values() if n.pool == pool and n.is_ready]
        left[pool] = math.ceil(len(ready) * _BUDGET - _TOLERANCE) - sum(n.is_leaving for n in ready)
    chosen = []
    for node in nodes:
        if left[node.pool] > 0:
            left[node.pool] -= 1
            chosen.append(node)
    return chosen


def _several(cluster: SimulatedCluster, candidates: Sequence[SimulatedNode]) -> Command | None:
    """The largest prefix of the candidates that is consolidated at once, by binary search."""
    allowed = _within_budgets(cluster, candidates)[:MAX_CANDIDATES]
    low, high = 1, len(allowed) - 1
    best = None
    while low <= high:
        middle = (low + high) // 2
        command = evaluate(cluster, allowed[: middle + 1])
        if command is not None:
            best, low = command, middle + 1
        else:
            high = middle - 1
    return best


def _single(cluster: SimulatedCluster, candidates: Sequence[SimulatedNode]) -> Command | None:
    """The first candidate that is consolidated alone; budgets hold for each NodePool."""
    for node in candidates:
        if _within_budgets(cluster, [node]):
            command = evaluate(cluster, [node])
            if command is not None:
                return command
    return None


def evaluate(cluster: SimulatedCluster, nodes: Sequence[SimulatedNode]) -> Command | None:
    """The command that removes the nodes; None where their pods need more than one new node, or nothing is saved."""
    names = tuple(n.name for n in nodes)
    rows = _rows_without(cluster, set(names))
    pods = [p for n in nodes for p in n.pods.values()]
    counts = _counts_without(cluster, nodes)
    plan = first_fit(
        [*pods, *cluster.pending.values()], catalog=cluster.catalog, rows=rows, cluster=cluster, counts=counts
    )
    if plan.unscheduled or len(plan.new) > 1:
        return None
    if not plan.new:
        return Command(names)
    new = plan.new[0]
    offerings = cluster.catalog.offerings[new.pool]
    if not _keep_cheaper(new, nodes, offerings):
        return None
    return Command(names, (cheapest(new, offerings)[0],))


def _rows_without(cluster: SimulatedCluster, removed: set[str]) -> NDArray[np.int64]:
    """The rows of the nodes that can take pods, by name, without those of these names."""
    nodes = (n for _, n in sorted(cluster.nodes.items()) if n.is_ready and not n.is_leaving and not n.is_reserved)
    return np.array([n.row for n in nodes if n.name not in removed], np.int64)


def _counts_without(cluster: SimulatedCluster, nodes: Iterable[SimulatedNode]) -> dict[str, NDArray[np.int64]]:
    """Pods by zone of workloads with zone_spread, without those on these nodes."""
    counts = {workload: c.copy() for workload, c in cluster.zone_counts.items()}
    for node in nodes:
        for pod in node.pods.values():
            if pod.trace.zone_spread:
                counts[pod.trace.workload][ZONES.index(node.zone)] -= 1
    return counts


def _keep_cheaper(new: NewNode, nodes: Sequence[SimulatedNode], offerings: Offerings) -> bool:
    """Keep the new node's types that cost less than the nodes whatever is launched; whether any are left.

    Spot is launched where it is offered. Source: Karpenter's pkg/controllers/disruption/consolidation.go.
    """
    limit = sum(n.price for n in nodes)
    kinds = offerings.capacity_types
    has_spot = _SPOT in kinds and bool(np.isfinite(offerings.price[new.types][:, new.zones, kinds.index(_SPOT)]).any())
    column = kinds.index(_SPOT) if has_spot else kinds.index("on-demand")
    prices = offerings.price[:, :, column][:, new.zones]
    worst = np.where(np.isfinite(prices), prices, -np.inf).max(1)
    worst = np.where(np.isfinite(worst), worst, np.inf)
    new.types = new.types & (worst < limit - _TOLERANCE)
    if len(nodes) > 1:
        _exclude_same_types(new, nodes, offerings)
    elif has_spot and nodes[0].capacity_type == _SPOT and int(new.types.sum()) < MIN_SPOT_TYPES:
        return False
    return bool(new.types.any())


def _exclude_same_types(new: NewNode, nodes: Sequence[SimulatedNode], offerings: Offerings) -> None:
    """Without types that cost as much as a removed node's type that the new node could have too."""
    prices: dict[str, float] = {}
    for node in nodes:
        prices[node.instance_type] = min(node.price, prices.get(node.instance_type, math.inf))
    limit = math.inf
    for name, price in prices.items():
        row = offerings.row.get(name)
        if row is not None and new.types[row]:
            limit = min(limit, price)
    if math.isfinite(limit):
        new.types = new.types & (offerings.price[:, new.zones].min((1, 2)) < limit - _TOLERANCE)
