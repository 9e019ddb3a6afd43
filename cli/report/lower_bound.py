"""A lower bound for the cost of nodes that can run some pods: no scheduling can cost less.

It follows from weak duality of the packing problem relaxed to fractions of nodes. Give each resource a price such that
no node's resources are worth more than the node costs. Then the pods' requests are worth no more than any nodes that
run them cost. Many such prices are tried, for combinations of cpu and memory and for each resource alone, and the
highest bound is used.

Pods of which no two may share a node, by their own anti-affinity, need a node each: they cost at least what the
cheapest node for each of them does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.api.labels import HOSTNAME
from shared.api.pods import requests
from shared.api.quantity import CPU, MEMORY, PODS, add
from shared.api.selectors import matches
from shared.base.struct import Struct
from shared.scheduling.state.daemonsets import daemon_set_pods
from shared.scheduling.state.launch_options import build_launch_options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from shared.api.kubernetes import Pod
    from shared.api.quantity import Resources
    from shared.cloud_provider import ResolvedNodePools
    from shared.snapshot import Snapshot

_STEPS = 65


class BoundedPod(Struct):
    """What a pod requests, and the group of pods of which no two share a node; "" if it may share."""

    requests: Resources
    apart: str = ""

    @classmethod
    def of(cls, pod: Pod) -> BoundedPod:
        """The pod.

        Raises:
            QuantityError: a request is no quantity.
        """
        affinity = pod.spec.affinity
        anti_affinity = affinity.pod_anti_affinity if affinity is not None else None
        terms = anti_affinity.required_during_scheduling_ignored_during_execution if anti_affinity is not None else []
        labels, namespace = pod.metadata.labels, pod.metadata.namespace
        is_apart = any(
            term.topology_key == HOSTNAME
            and namespace in (term.namespaces or [namespace])
            and matches(term.label_selector, labels)
            for term in terms
        )
        return cls(requests(pod), f"{namespace} {sorted(labels.items())}" if is_apart else "")


class LowerBound(Struct):
    """Prices of resources, USD per hour of one unit, a row for each try; what the nodes have free, and their prices."""

    resources: tuple[str, ...]
    prices: NDArray[np.float64]
    free: NDArray[np.float64]
    cost: NDArray[np.float64]

    def of(self, pods: Iterable[BoundedPod]) -> float:
        """USD per hour that nodes for these pods cost at least."""
        pods = tuple(pods)
        if not pods or not len(self.prices):
            return 0.0
        bound = float((self.prices @ self._amounts(add(*(pod.requests for pod in pods)))).max())
        apart: dict[str, float] = {}
        for pod in pods:
            if pod.apart:
                apart[pod.apart] = apart.get(pod.apart, 0.0) + self._least(pod.requests)
        return max(bound, *apart.values()) if apart else bound

    def _amounts(self, requested: Resources) -> NDArray[np.float64]:
        return np.array([requested.get(r, 0) for r in self.resources], np.float64)

    def _least(self, requested: Resources) -> float:
        """The price of the cheapest node for the pod; 0 if there is none."""
        fits = (self.free >= self._amounts(requested)).all(1)
        return float(self.cost[fits].min()) if fits.any() else 0.0


def lower_bound(snapshot: Snapshot, resolved_pools: ResolvedNodePools, requested: set[str]) -> LowerBound:
    """The bound for nodes that the NodePools can launch; ``requested`` are the resources that pods request."""
    resources = tuple(sorted(requested | {CPU, MEMORY, PODS}))
    launch_options = build_launch_options(
        snapshot.node_pools,
        resolved_pools.instance_types,
        daemon_set_pods(snapshot),
        resolved_pools.not_ready,
        resources,
    )
    if not len(launch_options.price):
        return LowerBound(resources, np.zeros((0, len(resources))), np.zeros((0, len(resources))), np.zeros(0))
    cost = launch_options.price.min(1)
    free = launch_options.free[:, [launch_options.resources.index(r) for r in resources]].astype(np.float64)
    directions = [np.eye(len(resources))[i] for i in range(len(resources))]
    cpu, memory = resources.index(CPU), resources.index(MEMORY)
    # the average memory of a node for one milli-cpu: it scales the range of prices that can matter
    memory_per_cpu = float(free[:, memory].sum() / max(free[:, cpu].sum(), 1))
    for share in np.linspace(0.02, 0.98, _STEPS):
        direction = np.zeros(len(resources))
        direction[cpu], direction[memory] = share, (1 - share) / memory_per_cpu
        directions.append(direction)
    candidates = np.array(directions)
    worth = free @ candidates.T
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.where(worth > 0, cost[:, None] / worth, np.inf).min(0)
    usable = np.isfinite(scale)
    return LowerBound(resources, candidates[usable] * scale[usable, None], free, cost)
