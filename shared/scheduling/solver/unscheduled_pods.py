"""Which pods are unscheduled, where not all can be scheduled.

Domains are filled in turn. If a limit or a full zone then leaves pods of one domain out, the others exceed maxSkew and
give pods back. Of equivalent pods the first by name are scheduled; else it would depend on how others are packed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.scheduling.rules.requirements import signature
from shared.scheduling.solver.pending_groups import PendingGroup, all_preferences
from shared.scheduling.topology.feasibility import tolerations_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.scheduling.solver.bins import Bin
    from shared.scheduling.solver.fit import Item
    from shared.scheduling.solver.pending_groups import PendingGroups
    from shared.scheduling.solver.plan import Plan
    from shared.scheduling.topology.pod_groups import PodGroup

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


def schedule_first_by_name(plan: Plan) -> None:
    """Exchanges scheduled and unscheduled pods that are equivalent, in place."""
    equivalence = _Equivalence(plan.pending_groups)
    unscheduled: dict[object, list[list[str]]] = {}
    for group in plan.unscheduled:
        for requests, pods in group.sizes:
            unscheduled.setdefault((equivalence.key(group.pod_group), requests.tobytes()), []).append(pods)
    scheduled: dict[object, list[list[str]]] = {}
    for item, pods in _scheduled(plan):
        if isinstance(item.owner, PendingGroup) and not any(plan.is_bundle(p) for p in pods):
            key: object = (equivalence.key(item.owner.pod_group), item.requests.tobytes())
            if key in unscheduled:
                scheduled.setdefault(key, []).append(pods)
    for key, lists in scheduled.items():
        all_lists = [*lists, *unscheduled[key]]
        names = iter(sorted(pod for pods in all_lists for pod in pods))
        for pods in all_lists:
            pods[:] = [next(names) for _ in pods]


def _scheduled(plan: Plan) -> Iterator[tuple[Item, list[str]]]:
    """The content of all bins and nodes; not pods whose volumes count against a node's volume limits."""
    for bin_ in plan.bins.opened:
        yield from bin_.content
    for node, content in plan.existing_capacity.content.items():
        has_volume_limits = bool(plan.existing_capacity.state_nodes.nodes[node].volume_limits)
        for item, pods in content:
            if not (item.feasibility.mounted_volumes and has_volume_limits):
                yield item, pods


class _Equivalence:
    """Keys that are equal for groups whose pods may replace one another, whatever their labels are."""

    def __init__(self, pending_groups: PendingGroups) -> None:
        self._pending_groups = pending_groups
        self._keys: dict[int, object] = {}

    def key(self, pods: PodGroup) -> object:
        if id(pods) not in self._keys:
            group = self._pending_groups.group(pods, all_preferences(pods), [])
            self._keys[id(pods)] = (
                tuple(signature(a) for a in pods.alternatives),
                tuple(signature(a) for a in pods.preferred_node_affinity),
                tolerations_key(pods.tolerations),
                tuple(sorted(group.rules.match.items())),
                tuple(sorted(group.rules.topology_spread.items(), key=lambda e: e[0])),
                (group.rules.anti_affinity, group.rules.required_anti_affinity, group.rules.affinity),
                (group.host.key, group.host_affinity),
                pods.ports,
            )
        return self._keys[id(pods)]
