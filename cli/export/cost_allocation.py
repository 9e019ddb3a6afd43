"""What namespaces cost: the price of each node, split by what its pods request. Pure.

Half of a node's price is for its CPUs and half for its memory, as pods request them of what is allocatable; what nobody
requests has no namespace. So the sum over all namespaces is the price of the nodes. Requests are what a node was bought
for: what pods use isn't known here.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from cli.export import families
from cli.export.exposition import Sample, sample
from shared.api.pods import is_terminal, requests
from shared.api.quantity import CPU, MEMORY, QuantityError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cli.nodes.rows import Row
    from shared.api.kubernetes import Pod

_SPLIT = {CPU: 0.5, MEMORY: 0.5}


def samples(rows: Iterable[Row], pods: Iterable[Pod], *, label: str) -> Iterator[Sample]:
    """USD per hour by namespace, and by the value of the pods' label of this name if it isn't ""."""
    by_node: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.spec.node_name and not is_terminal(pod):
            by_node[pod.spec.node_name].append(pod)
    costs: dict[tuple[str, str], float] = defaultdict(float)
    for row in rows:
        if not row.price:
            continue
        amounts = [(_owner(pod, label), _amounts(pod)) for pod in by_node[row.name]]
        unrequested = row.price
        for resource, weight in _SPLIT.items():
            total = max(row.allocatable.get(resource, 0), sum(amount.get(resource, 0) for _, amount in amounts))
            for owner, amount in amounts:
                cost = row.price * weight * amount.get(resource, 0) / total if total else 0.0
                costs[owner] += cost
                unrequested -= cost
        costs["", ""] += unrequested
    for (namespace, value), cost in sorted(costs.items()):
        yield sample(families.NAMESPACE_COST, max(cost, 0.0), namespace=namespace, label=value)


def _owner(pod: Pod, label: str) -> tuple[str, str]:
    return pod.metadata.namespace or "default", pod.metadata.labels.get(label, "") if label else ""


def _amounts(pod: Pod) -> Mapping[str, int]:
    try:
        return requests(pod)
    except QuantityError:
        return {}
