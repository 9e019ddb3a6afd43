"""The limit of node repair: of how many unhealthy nodes of a NodePool the cause is probably not the nodes.

By default that is more than a fifth of the NodePool's nodes, rounded up, as with Karpenter, so that a single unhealthy
node is always repaired. In a NodePool of four nodes the second one isn't; an annotation allows more there
(kubernetes-sigs/karpenter#2321).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.disruption.repair_policies import repair_matches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.kubernetes import Node
    from shared.api.nodepool import NodePool

REPAIR_LIMIT = "tenon.sh/repair-limit"
"""Annotation on a NodePool: the unhealthy nodes, as a number or as a percentage of its nodes, up to which node repair
repairs them."""
DEFAULT_LIMIT = "20%"
_PERCENT = 100
_MAX_DIGITS = 9


def read_limit(pool: NodePool) -> tuple[str, str]:
    """The NodePool's limit as a number or a percentage, and what is wrong with its annotation (empty: nothing)."""
    text = pool.metadata.annotations.get(REPAIR_LIMIT, DEFAULT_LIMIT).strip()
    number = text.removesuffix("%")
    is_number = number.isascii() and number.isdecimal() and len(number) <= _MAX_DIGITS
    if is_number and (number == text or int(number) <= _PERCENT):
        return text, ""
    problem = f'annotation {REPAIR_LIMIT} is "{text}"; allowed are a number of nodes (2) and a percentage (50%)'
    return DEFAULT_LIMIT, f"{problem}; the default {DEFAULT_LIMIT} holds"


def nodes_allowed(limit: str, total: int) -> int:
    """How many of that many nodes may be unhealthy.

    >>> nodes_allowed("20%", 6), nodes_allowed("2", 4)
    (2, 2)
    """
    return -(-total * int(limit[:-1]) // _PERCENT) if limit.endswith("%") else int(limit)


def pools_over_limit(pools: Iterable[NodePool], nodes: Iterable[Node]) -> dict[str, str]:
    """Of these NodePools, those in which more nodes are unhealthy than their limit allows: why, by name.

    A node counts as soon as a policy matches one of its conditions, however long that is tolerated.
    """
    of_pool = [(node.metadata.labels.get(names.NODEPOOL, ""), node) for node in nodes]
    totals = Counter(pool for pool, _ in of_pool)
    unhealthy = Counter(pool for pool, node in of_pool if pool and repair_matches(node))
    limits = {pool.name: read_limit(pool)[0] for pool in pools}
    return {
        name: f"more than {limit} of the nodes of NodePool {name} are unhealthy"
        for name, limit in limits.items()
        if unhealthy[name] > nodes_allowed(limit, totals[name])
    }
