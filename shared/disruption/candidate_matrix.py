"""The cluster as arrays: what each candidate costs, holds and needs, and the room that all nodes have left.

Only for finding sets of nodes that are worth asking the scheduling core about: constraints other than size are its
business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from shared.api.pods import spec_requests
from shared.api.quantity import QuantityError
from shared.disruption import disruption_cost
from shared.scheduling.state.daemonsets import daemon_set_pods
from shared.scheduling.state.offerings import catalog_of
from shared.scheduling.state.state_nodes import build_cluster_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from shared.api.kubernetes import Pod
    from shared.api.quantity import Resources
    from shared.disruption.candidates import Candidate
    from shared.disruption.cluster_state import ClusterState

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, kw_only=True)
class CandidateMatrix:
    """Rows are candidates, in the order given, and places.

    ``price`` is USD per hour; ``worth`` is the least that machines for just its pods could cost; ``moving`` is USD to
    restart its pods; ``needs`` are its pods' requests, largest first; ``room`` is what places have left, ``at`` the
    row of each candidate's own place (-1: none).
    """

    price: Floats
    resource_value: Floats
    disruption_cost: Floats
    pod_requests: tuple[Ints, ...]
    free: Ints
    node_rows: Ints

    def excess_price_ratio(self) -> Floats:
        """How much more than its pods are worth each candidate costs, by USD of moving them; the larger the better."""
        found: Floats = (self.price - self.resource_value) / (self.disruption_cost + disruption_cost.RESTART_COST)
        return found


def build_candidate_matrix(
    view: ClusterState, candidates: Sequence[Candidate], prices: Sequence[float]
) -> CandidateMatrix:
    """The ground for these candidates."""
    daemons = daemon_set_pods(view.snapshot.daemon_sets)
    inventory = build_cluster_state(view.snapshot, view.instance_types, daemons, view.disrupting_nodes)
    known: dict[bytes, Resources] = {}
    asked = [[_requests(p, known) for p in c.pods] for c in candidates]
    resources = tuple(sorted({r for pods in asked for one in pods for r in one} | {"cpu", "memory", "pods"}))
    column = {r: i for i, r in enumerate(resources)}
    places = [p for p in inventory.nodes if p.initialized]
    room = np.array([[p.available.get(r, 0) for r in resources] for p in places], np.int64).reshape(-1, len(resources))
    row = {p.name: i for i, p in enumerate(places)}
    sizes, costs = _machines(view, resources)
    needs = []
    for pods in asked:
        matrix = np.zeros((len(pods), len(resources)), np.int64)
        for i, one in enumerate(pods):
            for name, amount in one.items():
                matrix[i, column[name]] = amount
        needs.append(matrix[np.lexsort(matrix.T[::-1])[::-1]] if len(pods) else matrix)
    total = np.array([n.sum(0) for n in needs], np.int64).reshape(len(needs), len(resources))
    worth = np.array([_worth(t, sizes, costs) for t in total]) if len(total) else np.zeros(0)
    moving = [
        sum(disruption_cost.pod_disruption_cost(p, w / max(1, len(c.pods))) for p in c.pods)
        for c, w in zip(candidates, worth.tolist(), strict=True)
    ]
    return CandidateMatrix(
        price=np.array(prices, np.float64),
        resource_value=worth,
        disruption_cost=np.array(moving, np.float64),
        pod_requests=tuple(needs),
        free=room,
        node_rows=np.array([row.get(c.name, -1) for c in candidates], np.int64),
    )


def _requests(pod: Pod, known: dict[bytes, Resources]) -> Resources:
    spec = pod.spec
    key = _encode((spec.containers, spec.init_containers, spec.overhead, spec.resources))
    found = known.get(key)
    if found is None:
        try:
            found = spec_requests(spec)
        except QuantityError:
            found = {"pods": 1}
        known[key] = found
    return found


def _machines(view: ClusterState, resources: Sequence[str]) -> tuple[Floats, Floats]:
    """What every type of any pool holds, and the least it costs."""
    sizes: list[Floats] = [np.zeros((0, len(resources)))]
    costs: list[Floats] = [np.zeros(0)]
    for types in {id(t): t for t in view.instance_types.values() if t}.values():
        catalog = catalog_of(types)
        wide = np.zeros((len(catalog.names), len(resources)))
        for i, name in enumerate(resources):
            if name in catalog.resources:
                wide[:, i] = catalog.allocatable[:, catalog.resources.index(name)]
        least = catalog.price.min(1)
        sizes.append(wide[np.isfinite(least)])
        costs.append(least[np.isfinite(least)])
    return np.concatenate(sizes), np.concatenate(costs)


def _worth(total: Ints, sizes: Floats, costs: Floats) -> float:
    """The least price of any type times the part of it that the pods take."""
    asked = np.flatnonzero(total)
    if not len(asked) or not len(costs):
        return 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (total[asked] / sizes[:, asked]).max(1)
    priced = np.where(np.isfinite(share), share * costs, np.inf)
    return float(priced.min())


def deletable_candidates(ground: CandidateMatrix, order: Sequence[int], *, at_most: int) -> list[int]:
    """Candidates whose pods fit into room that others have, first fit into the fullest place, in the given order.

    Sizes alone count. A place that has taken pods is no longer given up.
    """
    room = ground.free.copy()
    given = np.zeros(len(room), np.bool_)
    took = np.zeros(len(room), np.bool_)
    fullness = np.argsort(room[:, 0] if room.shape[1] else np.zeros(len(room)), kind="stable")
    chosen: list[int] = []
    for i in order:
        if len(chosen) >= at_most:
            break
        own = int(ground.node_rows[i])
        if own < 0 or took[own]:
            continue
        given[own] = True
        placed = _place(ground.pod_requests[i], room, given, fullness)
        if placed is None:
            given[own] = False
            continue
        for place, need in placed:
            room[place] -= need
            took[place] = True
        chosen.append(i)
    return chosen


def _place(needs: Ints, room: Ints, given: NDArray[np.bool_], order: NDArray[np.intp]) -> list[tuple[int, Ints]] | None:
    """Places for all of these pods, or None; room is left as it was."""
    placed: list[tuple[int, Ints]] = []
    taken: dict[int, Ints] = {}
    open_ = order[~given[order]]
    for need in needs:
        fits = (room[open_] >= need).all(1)
        found = -1
        for at in np.flatnonzero(fits).tolist():
            place = int(open_[at])
            if place not in taken or (room[place] - taken[place] >= need).all():
                found = place
                break
        if found < 0:
            return None
        taken[found] = taken.get(found, 0) + need
        placed.append((found, need))
    return placed
