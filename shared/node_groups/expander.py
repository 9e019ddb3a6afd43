"""Which node group grows first: Cluster Autoscaler's expanders, as weights of the groups' NodePools. Pure.

Without an expander the cheapest grows. ``least-waste`` and ``most-pods`` compare what a decision with each group alone
would do; ``priority`` is the user's order, by regular expressions on names. Groups that an expander leaves equal are
decided by the next one, and then by price.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from shared.api.quantity import CPU, MEMORY
from shared.node_groups.group_pools import DEFAULT_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from shared.node_groups.group_pools import GroupPool
    from shared.node_groups.options import NodeGroupOptions
    from shared.scheduling.decision import Decision, PlannedNodeClaim

PRIORITIES = "cluster-autoscaler-priority-expander"
"""The ConfigMap of the priorities, in namespace kube-system; key ``priorities``."""
_PREFERRED = 1_000_000
"""Beyond any weight of a NodePool, and any number of groups."""
_RANKING = frozenset({"least-waste", "most-pods", "priority"})

Priorities = tuple[tuple[int, tuple[re.Pattern[str], ...]], ...]


def parse_priorities(text: str) -> tuple[Priorities, tuple[str, ...]]:
    """The regular expressions by priority, greatest first, and what is wrong with others.

    The format is Cluster Autoscaler's: YAML with a list of regular expressions for each number.
    """
    try:
        raw = msgspec.yaml.decode(text, type=dict[int, list[str]]) if text.strip() else {}
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        return (), (f"ConfigMap {PRIORITIES}: {error}",)
    problems: list[str] = []
    priorities: list[tuple[int, tuple[re.Pattern[str], ...]]] = []
    for number, expressions in sorted(raw.items(), reverse=True):
        patterns = []
        for expression in expressions:
            try:
                patterns.append(re.compile(expression))
            except (re.error, RecursionError, OverflowError) as error:
                problems.append(f'ConfigMap {PRIORITIES}: "{expression}" is no regular expression: {error}')
        priorities.append((number, tuple(patterns)))
    return tuple(priorities), tuple(problems)


def is_ranking(options: NodeGroupOptions) -> bool:
    """Whether the options order groups otherwise than by price."""
    return not _RANKING.isdisjoint(options.expander)


def weights(
    pools: Iterable[GroupPool],
    options: NodeGroupOptions,
    *,
    alone: Callable[[GroupPool], Decision],
    priorities: Priorities = (),
) -> dict[str, int]:
    """The weight of each group's NodePool, by group; equal ones are decided by price.

    ``alone`` decides with this group as the only one.
    """
    scores: dict[str, tuple[float, ...]] = {}
    for pool in pools:
        claims: tuple[PlannedNodeClaim, ...] = ()
        if not {"least-waste", "most-pods"}.isdisjoint(options.expander):
            claims = tuple(c for c in alone(pool).new_node_claims if c.node_pool == pool.pool_name)
        scores[pool.group.name] = tuple(
            _score(expander, pool, claims, priorities) for expander in options.expander if expander in _RANKING
        )
    ranks = {score: -rank for rank, score in enumerate(sorted(set(scores.values()), reverse=True))}
    return {name: DEFAULT_WEIGHT + ranks[score] + preference(options) for name, score in scores.items()}


def preference(options: NodeGroupOptions) -> int:
    """What is added to the weights of groups, so that they grow before NodePools or after them."""
    return {"node-groups": _PREFERRED, "pools": -_PREFERRED}.get(options.prefer, 0)


def _score(expander: str, pool: GroupPool, claims: tuple[PlannedNodeClaim, ...], priorities: Priorities) -> float:
    """Greater is better; groups that help no pod are last."""
    if expander == "priority":
        own_names = [name for name in (pool.group.name, pool.group.managed) if name]
        matching = (p for p, patterns in priorities if any(r.search(name) for r in patterns for name in own_names))
        return max(matching, default=float("-inf"))
    if not claims:
        return float("-inf")
    if expander == "most-pods":
        return sum(len(claim.pods) for claim in claims)
    return -sum(_waste(claims, pool.node.allocatable, name) for name in (CPU, MEMORY))


def _waste(claims: tuple[PlannedNodeClaim, ...], allocatable: Mapping[str, int], name: str) -> float:
    """The share of a resource that pods leave on the new nodes."""
    total = allocatable.get(name, 0) * len(claims)
    return 1 - sum(claim.requests.get(name, 0) for claim in claims) / total if total else 0.0
