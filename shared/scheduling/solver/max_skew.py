"""Keeps maxSkew after pods were left out: domains with too many pods give some back.

Domains are filled in turn. If a limit or a full zone then leaves pods of one domain out, the others have too many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.scheduling.solver.pending_groups import PendingGroup

if TYPE_CHECKING:
    from shared.scheduling.solver.bins import Bin
    from shared.scheduling.solver.lots import Item
    from shared.scheduling.solver.plan import Plan

_ALL_PODS = 1 << 30


def remove_excess_pods(plan: Plan) -> None:
    """Unschedules pods until no domain exceeds the maxSkew of its pods."""
    changed = True
    while changed:
        changed = False
        for bin_ in list(plan.bins.opened):
            changed |= _remove_from_bin(plan, bin_)
        for node in plan.existing_capacity.content:
            changed |= _remove_from_node(plan, node)


def _remove_from_bin(plan: Plan, bin_: Bin) -> bool:
    changed = False
    for at, (item, pods) in enumerate(bin_.content):
        n = min(len(pods), _excess(plan, item))
        if n:
            bin_.content[at] = (item, pods[:-n])
            bin_.used = bin_.used - item.requests * n
            plan.unschedule(item, pods[-n:])
            changed = True
    bin_.content = [(item, pods) for item, pods in bin_.content if pods]
    if not bin_.content:
        plan.bins.close(bin_)
    return changed


def _remove_from_node(plan: Plan, node: int) -> bool:
    changed = False
    for at, (item, pods) in enumerate(plan.existing_capacity.content[node]):
        n = min(len(pods), _excess(plan, item))
        if n:
            plan.unschedule(item, plan.existing_capacity.remove(node, at, n))
            changed = True
    return changed


def _excess(plan: Plan, item: Item) -> int:
    """How many pods of the item its domain has too many."""
    group, counts = item.owner, plan.topology.domain_counts
    if not isinstance(group, PendingGroup):
        return 0
    excess = 0
    for term, spread in group.rules.topology_spread.items():
        over = -counts.skew_left(term, spread, item.where[counts.keys[term]])
        if over > 0:
            weight = group.rules.match.get(term, 0)
            excess = max(excess, -(-over // weight) if weight else _ALL_PODS)
    return excess
