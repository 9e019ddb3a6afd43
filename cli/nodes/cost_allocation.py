"""What namespaces cost: the price of each node, split by what its pods request. Pure.

A node's price is split between its CPU, memory and GPUs in the ratio of base prices, then by what pods request of what
is allocatable. The rule is Kubecost's (https://docs.kubecost.com/architecture/node-pricing), the base prices are those
of OpenCost for AWS (configs/aws.json of github.com/opencost/opencost). The pods of DaemonSets and static pods are a
share of their own, and so is what nobody requests, so the sum of all shares is the price of the nodes.

Two things differ from OpenCost. Only requests count, as nodes are bought for them and what pods use isn't known here.
Other devices than GPUs have no base price, so CPU and memory bear their cost.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING

from shared.api.devices import GPU_RESOURCES
from shared.api.pods import is_daemon, is_mirror, is_terminal, requests
from shared.api.quantity import CPU, MEMORY, QuantityError
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cli.nodes.rows import Row
    from shared.api.kubernetes import Pod

PODS, DAEMONS, IDLE = "pods", "daemons", "idle"
"""Shares of a node: pods that were scheduled, pods that every node has, and what nobody requests."""
UNITS = 10**12
"""Costs are integers of one trillionth of a USD per hour, so that sums are exact."""
_MILLI, _GIB = 1000, 2**30
_WEIGHTS = {
    CPU: 31_611 * _GIB,
    MEMORY: 4_237 * _MILLI,
    **dict.fromkeys(GPU_RESOURCES.values(), 950_000 * _MILLI * _GIB),
}
"""Base prices in one unit: of a milli-core, a byte and a GPU. Per hour they are $0.031611 a core, $0.004237 a GiB and
$0.95 a GPU."""


class CostShare(Struct, kw_only=True):
    """The cost of one namespace's pods, of those of them that have a value of the label, of daemons, or of idle room.

    ``cost`` is in ``UNITS``. ``namespace`` and ``value`` are "" except for pods; ``value`` too without a label.
    """

    share: str
    namespace: str = ""
    value: str = ""
    cost: int


def allocate(rows: Iterable[Row], pods: Iterable[Pod], *, label: str = "") -> list[CostShare]:
    """The shares of the nodes' price per hour: most expensive pods first, then daemons and idle room.

    Pods are split by the value of this label, too, if it isn't "". Nodes without a known price are left out.
    """
    by_node: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.spec.node_name and not is_terminal(pod):
            by_node[pod.spec.node_name].append(pod)
    costs: dict[tuple[str, str, str], int] = {(DAEMONS, "", ""): 0, (IDLE, "", ""): 0}
    for row in rows:
        if row.price is not None:
            for owner, cost in _node_costs(row, by_node[row.name], label).items():
                costs[owner] = costs.get(owner, 0) + cost
    shares = [CostShare(share=s, namespace=n, value=v, cost=cost) for (s, n, v), cost in costs.items()]
    rank = (PODS, DAEMONS, IDLE)
    return sorted(shares, key=lambda s: (rank.index(s.share), -s.cost, s.namespace, s.value))


def rounded(shares: Sequence[CostShare], *, places: int) -> list[float]:
    """USD per hour of each share with this number of decimal places; their sum is the bill, rounded to as many.

    Those that lose most by rounding down are rounded up (the largest remainder method).
    """
    step = UNITS // 10**places
    units = [share.cost // step for share in shares]
    missing = (sum(share.cost for share in shares) + step // 2) // step - sum(units)
    for index in sorted(range(len(shares)), key=lambda i: -(shares[i].cost % step))[:missing]:
        units[index] += 1
    return [unit / 10**places for unit in units]


def _node_costs(row: Row, pods: Iterable[Pod], label: str) -> dict[tuple[str, str, str], int]:
    """The price of the node by owner; where pods request more than is allocatable, nothing is idle."""
    requested: dict[tuple[str, str, str], dict[str, int]] = defaultdict(lambda: dict.fromkeys(_WEIGHTS, 0))
    for pod in pods:
        amounts, owned = _amounts(pod), requested[_owner(pod, label)]
        for resource in _WEIGHTS:
            owned[resource] += amounts.get(resource, 0)
    total = 0
    for resource, weight in _WEIGHTS.items():
        in_use = sum(owned[resource] for owned in requested.values())
        total += weight * max(row.allocatable.get(resource, 0), in_use)
    price = round(Fraction(str(row.price)) * UNITS)
    costs = {owner: price * _weighted(owned) // total if total else 0 for owner, owned in requested.items()}
    return {**costs, (IDLE, "", ""): price - sum(costs.values())}


def _weighted(amounts: Mapping[str, int]) -> int:
    return sum(weight * amounts[resource] for resource, weight in _WEIGHTS.items())


def _owner(pod: Pod, label: str) -> tuple[str, str, str]:
    if is_daemon(pod) or is_mirror(pod):
        return DAEMONS, "", ""
    return PODS, pod.metadata.namespace or "default", pod.metadata.labels.get(label, "") if label else ""


def _amounts(pod: Pod) -> Mapping[str, int]:
    try:
        return requests(pod)
    except QuantityError:
        return {}
