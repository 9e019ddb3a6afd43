"""The candidates as arrays: what each costs, what its pods request, and what all nodes have available.

Only for finding sets of candidates that are worth simulating: it considers resources alone. The scheduler checks all
other constraints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from shared.api.pods import spec_requests
from shared.api.quantity import QuantityError
from shared.base.struct import Struct
from shared.disruption.disruption_cost import RESTART_COST, pod_disruption_cost
from shared.scheduling.state.instance_type_arrays import instance_type_arrays
from shared.scheduling.state.state_nodes import build_state_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from shared.api.kubernetes import Pod
    from shared.api.quantity import Resources
    from shared.disruption.candidates import Candidate
    from shared.disruption.disruption_state import DisruptionState

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

_encode = msgspec.msgpack.Encoder().encode


class CandidateMatrix(Struct, kw_only=True):
    """Candidates in the order given, and initialized nodes; the columns of requests and resources are the same.

    ``price`` is USD per hour of each candidate, ``resource_value`` the lowest USD per hour that capacity for just its
    pods could cost, ``disruption_cost`` USD to move its pods, whose lost work counts by their share of the node's price
    (and, where a commitment pays the node or its price isn't known, by the resource value). ``pod_requests`` are (pods,
    resources), largest pod first. ``free`` is (nodes, resources); ``node_rows`` is the row of each candidate's own node
    in it (-1: none). The chunks of CapacityBuffers count as pods that cost nothing to move.
    """

    price: Floats
    resource_value: Floats
    disruption_cost: Floats
    pod_requests: tuple[Ints, ...]
    free: Ints
    node_rows: Ints

    def excess_price_ratio(self) -> Floats:
        """Each candidate's price in excess of its resource value, per USD of disruption cost."""
        ratio: Floats = (self.price - self.resource_value) / (self.disruption_cost + RESTART_COST)
        return ratio


def build_candidate_matrix(
    state: DisruptionState, candidates: Sequence[Candidate], prices: Sequence[float]
) -> CandidateMatrix:
    """The matrix of these candidates; ``prices`` are theirs in USD per hour."""
    cache: dict[bytes, Resources] = {}
    requests = [[_requests(p, cache) for p in (*c.pods, *state.chunks.get(c.name, ()))] for c in candidates]
    requested = {resource for pods in requests for pod in pods for resource in pod}
    resources = tuple(sorted(requested | {"cpu", "memory", "pods"}))
    node_names, free = _free_resources(state, resources, cache)
    row_of = {name: i for i, name in enumerate(node_names)}
    allocatable, type_prices = _cheapest_prices(state, resources)
    rows = [_request_rows(pods, resources) for pods in requests]
    values = [_resource_value(r.sum(0), allocatable, type_prices) for r in rows]
    costs: list[float] = []
    for candidate, of_node, price, value in zip(candidates, rows, prices, values, strict=True):
        row = row_of.get(candidate.name)
        room = np.maximum(free[row], 0) if row is not None else np.zeros(len(resources), np.int64)
        costs.append(_disruption_cost(candidate, _resource_prices(of_node, room, price=price, at_least=value)))
    return CandidateMatrix(
        price=np.array(prices, np.float64),
        resource_value=np.array(values, np.float64),
        disruption_cost=np.array(costs, np.float64),
        pod_requests=tuple(_largest_first(r) for r in rows),
        free=free,
        node_rows=np.array([row_of.get(c.name, -1) for c in candidates], np.int64),
    )


def _free_resources(
    state: DisruptionState, resources: Sequence[str], cache: dict[bytes, Resources]
) -> tuple[list[str], Ints]:
    """The names of the initialized nodes, and what each has available, as (nodes, resources).

    The room of CapacityBuffers isn't available: pods may take it, but it is bought again.
    """
    state_nodes = build_state_nodes(state.snapshot, state.instance_types, state.disrupting_nodes).nodes
    nodes = [n for n in state_nodes if n.initialized]
    free = np.array([[n.available.get(r, 0) for r in resources] for n in nodes], np.int64).reshape(-1, len(resources))
    for i, node in enumerate(nodes):
        for chunk in state.chunks.get(node.name, ()):
            free[i] -= [_requests(chunk, cache).get(r, 0) for r in resources]
    return [n.name for n in nodes], free


def _resource_prices(rows: Ints, room: Ints, *, price: float, at_least: float) -> Floats:
    """USD per hour of each pod's resources: the share of the node that it takes, of the resource that it takes most of.

    ``rows`` are what the pods request, ``room`` is what they leave. All of them cost at most the node's ``price``, and
    ``at_least`` what capacity for just them could cost.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        shares: Floats = np.nan_to_num(rows / (rows.sum(0) + room)).max(1, initial=0.0)
    whole = float(shares.sum())
    return shares * (max(price * min(1.0, whole), at_least) / whole) if whole else shares


def _disruption_cost(candidate: Candidate, resource_prices: Floats) -> float:
    """USD to move the candidate's pods; the first of the prices (USD per hour) are those of their resources."""
    of_pool = candidate.pool.metadata.annotations
    prices = resource_prices[: len(candidate.pods)].tolist()
    return sum(pod_disruption_cost(p, price, of_pool) for p, price in zip(candidate.pods, prices, strict=True))


def _requests(pod: Pod, cache: dict[bytes, Resources]) -> Resources:
    """The pod's requests; pods with equal containers share them by the cache."""
    spec = pod.spec
    key = _encode((spec.containers, spec.init_containers, spec.overhead, spec.resources))
    requests = cache.get(key)
    if requests is None:
        try:
            requests = spec_requests(spec)
        except QuantityError:
            requests = {"pods": 1}
        cache[key] = requests
    return requests


def _request_rows(pods: Sequence[Resources], resources: Sequence[str]) -> Ints:
    """The requests as (pods, resources)."""
    column_of = {r: i for i, r in enumerate(resources)}
    rows = np.zeros((len(pods), len(resources)), np.int64)
    for i, requests in enumerate(pods):
        for resource, amount in requests.items():
            rows[i, column_of[resource]] = amount
    return rows


def _largest_first(rows: Ints) -> Ints:
    return rows[np.lexsort(rows.T[::-1])[::-1]]


def _cheapest_prices(state: DisruptionState, resources: Sequence[str]) -> tuple[Floats, Floats]:
    """The allocatable resources of all instance types of any pool, and their lowest USD per hour."""
    allocatable: list[Floats] = [np.zeros((0, len(resources)))]
    prices: list[Floats] = [np.zeros(0)]
    for types in {id(t): t for t in state.instance_types.values() if t}.values():
        catalog = instance_type_arrays(types)
        rows = np.zeros((len(catalog.names), len(resources)))
        for i, resource in enumerate(resources):
            if resource in catalog.resources:
                rows[:, i] = catalog.allocatable[:, catalog.resources.index(resource)]
        lowest = catalog.price.min(1)
        available = np.isfinite(lowest)
        allocatable.append(rows[available])
        prices.append(lowest[available])
    return np.concatenate(allocatable), np.concatenate(prices)


def _resource_value(total: Ints, allocatable: Floats, prices: Floats) -> float:
    """USD per hour: the lowest price of any type, times the share of the type that ``total`` takes."""
    requested = np.flatnonzero(total)
    if not len(requested) or not len(prices):
        return 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (total[requested] / allocatable[:, requested]).max(1)
    return float(np.where(np.isfinite(share), share * prices, np.inf).min())


def deletable_candidates(
    matrix: CandidateMatrix, order: Sequence[int], *, at_most: int, max_pods: int = 2**31
) -> list[int]:
    """Candidates whose pods fit on the other nodes, by first fit on the fullest node, in the given order.

    Considers resources alone. A node that has taken pods is no longer deleted. At most ``max_pods`` pods are tried.
    """
    free = matrix.free.copy()
    deleted = np.zeros(len(free), np.bool_)
    filled = np.zeros(len(free), np.bool_)
    fullest_first = np.argsort(free[:, 0] if free.shape[1] else np.zeros(len(free)), kind="stable")
    chosen: list[int] = []
    for i in order:
        if len(chosen) >= at_most or max_pods <= 0:
            break
        own_node = int(matrix.node_rows[i])
        if own_node < 0 or filled[own_node]:
            continue
        deleted[own_node] = True
        max_pods -= len(matrix.pod_requests[i])
        placements = _first_fit(matrix.pod_requests[i], free, fullest_first[~deleted[fullest_first]])
        if placements is None:
            deleted[own_node] = False
            continue
        for node, request in placements:
            free[node] -= request
            filled[node] = True
        chosen.append(i)
    return chosen


def _first_fit(requests: Iterable[Ints], free: Ints, nodes: NDArray[np.intp]) -> list[tuple[int, Ints]] | None:
    """A node for each of the requests, or None when one fits nowhere; ``free`` isn't changed."""
    placements: list[tuple[int, Ints]] = []
    taken: dict[int, Ints] = {}
    for request in requests:
        fitting = nodes[(free[nodes] >= request).all(1)].tolist()
        node = next((n for n in fitting if n not in taken or (free[n] - taken[n] >= request).all()), None)
        if node is None:
            return None
        taken[node] = taken.get(node, 0) + request
        placements.append((node, request))
    return placements
