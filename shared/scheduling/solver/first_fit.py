"""First fit: pod by pod, the largest first, as Karpenter's scheduler does it.

The counted plan decides how many nodes run all pods; it doesn't decide which pods to leave out where a limit, a full
node or two rules at once stand in the way. Here every pod is placed before the next, so rules hold after each step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.base.struct import Struct
from shared.scheduling.solver.domain_assignment import DomainAssignment
from shared.scheduling.solver.fit import Item, set_worth
from shared.scheduling.solver.growing_bins import GrowingBins
from shared.scheduling.solver.pending_groups import relax
from shared.scheduling.state.launch_options import NodePoolWeights

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from shared.scheduling.solver.bins import Bins
    from shared.scheduling.solver.domain_assignment import DomainChoice
    from shared.scheduling.solver.existing_capacity import ExistingCapacity
    from shared.scheduling.solver.pending_groups import PendingGroup, PendingGroups, Preferences
    from shared.scheduling.topology.feasibility import FeasibilityChecker
    from shared.scheduling.topology.topology import Topology

    Ints = NDArray[np.int64]


class _QueuedPod(Struct, eq=False):
    """A pod with its group before any preference was relaxed."""

    group: PendingGroup
    requests: Ints
    pod: str


class FirstFit:
    """Places pods one by one on existing nodes and in bins. ``relaxed`` counts the preferences that were relaxed."""

    def __init__(
        self,
        checker: FeasibilityChecker,
        topology: Topology,
        existing_capacity: ExistingCapacity,
        bins: Bins,
        pending_groups: PendingGroups,
        *,
        reserve_largest: bool,
        preferred_domain: str,
    ) -> None:
        self._checker = checker
        self._launch_options = checker.launch_options
        self._existing_capacity = existing_capacity
        self._domain_counts = topology.domain_counts
        self._assignment = DomainAssignment(checker, topology, existing_capacity, preferred_domain)
        self._pending_groups = pending_groups
        self._growing_bins = GrowingBins(bins, reserve_largest=reserve_largest)
        self._options_by_weight = list(NodePoolWeights(checker.launch_options).options_by_weight())
        self._choices: dict[int, list[DomainChoice]] = {}
        self._relaxed_groups: dict[tuple[int, Preferences], PendingGroup] = {}
        self._failed_at: dict[tuple[int, bytes], int] = {}
        self._version = 0
        self.relaxed = 0

    def run(self, groups: Sequence[PendingGroup]) -> list[PendingGroup]:
        """Places the groups' pods; returns groups of the pods that fit nowhere."""
        queue = sorted(
            (_QueuedPod(g, requests, pod) for g in groups for requests, pods in g.sizes for pod in pods),
            key=lambda q: (self._order(q.requests), q.pod),
        )
        while queue:
            left = [q for q in queue if not self._try(q)]
            if len(left) == len(queue):
                break
            queue = left
        self._growing_bins.settle()
        set_worth(self._checker, [item for b in self._growing_bins.all for item, _ in b.bin.content])
        left_over = self._regroup(queue)
        for group in (*groups, *self._relaxed_groups.values()):
            group.sizes = []  # from now on, only pods that are given back
        return left_over

    def _order(self, requests: Ints) -> tuple[int, ...]:
        """CPU, then memory, then the other resources; largest first."""
        resources = self._launch_options.resources
        first = [resources.index(name) for name in ("cpu", "memory") if name in resources]
        rest = [i for i in range(len(requests)) if i not in first]
        return tuple(-int(requests[i]) for i in (*first, *rest))

    def _regroup(self, queue: Iterable[_QueuedPod]) -> list[PendingGroup]:
        """The pods in groups with all preferences relaxed."""
        groups: dict[int, PendingGroup] = {}
        for queued in queue:
            key = id(queued.group)
            if key not in groups:
                group = queued.group
                groups[key] = self._pending_groups.group(group.pod_group, _all_relaxed(group), [])
            groups[key].sizes.append((queued.requests, [queued.pod]))
        return list(groups.values())

    # --- one pod ---

    def _try(self, queued: _QueuedPod) -> bool:
        """Places a pod, relaxing its preferences one by one; whether it was placed."""
        key = (id(queued.group), queued.requests.tobytes())
        if self._failed_at.get(key) == self._version:
            return False
        group, steps = queued.group, 0
        while not self._place(group, queued.requests, queued.pod):
            preferences = relax(group.pod_group, group.preferences, group.tried)
            if preferences is None:
                self._failed_at[key] = self._version
                return False
            steps += 1
            group = self._relaxed_group(group, preferences)
        self.relaxed += steps
        self._version += 1
        return True

    def _relaxed_group(self, group: PendingGroup, preferences: Preferences) -> PendingGroup:
        key = (id(group.pod_group), preferences)
        relaxed = self._relaxed_groups.get(key)
        if relaxed is None:
            sizes = [(group.sizes[0][0], [group.sizes[0][1][0]])]
            relaxed = self._relaxed_groups[key] = self._pending_groups.group(group.pod_group, preferences, sizes)
        return relaxed

    def _place(self, group: PendingGroup, requests: Ints, pod: str) -> bool:
        choices = self._choices.get(id(group))
        if choices is None:
            choices = self._choices[id(group)] = self._assignment.choices(group)
        open_choices = [c for c in choices if self._domain_counts.room(group.rules, c.where) > 0]
        open_choices.sort(key=lambda c: self._crowding(group, c))
        return bool(open_choices) and (
            self._on_existing_node(group, requests, pod, open_choices)
            or self._in_open_bin(group, requests, pod, open_choices)
            or self._in_new_bin(group, requests, pod, open_choices)
        )

    def _crowding(self, group: PendingGroup, choice: DomainChoice) -> tuple[bool, int]:
        """Domains that keep the maxSkew of other groups come first, then the emptiest."""
        counts = self._domain_counts
        count = sum(counts.count(t, choice.where[counts.keys[t]]) for t in group.rules.topology_spread)
        return counts.skew_room(group.rules, choice.where) <= 0, count

    def _on_existing_node(self, group: PendingGroup, requests: Ints, pod: str, choices: Sequence[DomainChoice]) -> bool:
        if not len(self._existing_capacity):
            return False
        required = self._required_on_host(group)
        for choice in choices:
            if choice.feasibility.nodes.any():
                item = Item(choice.feasibility, requests, [pod], owner=group, where=choice.where)
                if self._existing_capacity.place(item, 1, required):
                    self._domain_counts.take(group.rules, choice.where, 1)
                    return True
        return False

    def _required_on_host(self, group: PendingGroup) -> tuple[int, ...]:
        """The host terms that need a pod on the host: all of its affinity, unless the pod may be the first of all."""
        may_be_first = all(group.host.match.get(t) and not self._is_present(t) for t in group.host_affinity)
        return () if may_be_first else group.host_affinity

    def _is_present(self, term: int) -> bool:
        """Whether any host has a pod of a term."""
        present = self._existing_capacity.host_counts.present.get(term)
        on_existing = present is not None and bool(present.any())
        return on_existing or any(b.present.get(term) for b in self._growing_bins.all)

    def _in_open_bin(self, group: PendingGroup, requests: Ints, pod: str, choices: Sequence[DomainChoice]) -> bool:
        required = self._required_on_host(group)
        size = requests.tobytes()
        for growing in self._growing_bins.by_pod_count():
            if not all(growing.present.get(t) for t in required) or not growing.allows(group.host):
                continue
            for choice in choices:
                key = (choice.feasibility.mask_key, size)
                if key in growing.full or any(growing.where.get(k, v) != v for k, v in choice.where.items()):
                    continue
                if self._growing_bins.add_pod(growing, group, choice, requests, pod):
                    self._domain_counts.take(group.rules, choice.where, 1)
                    return True
                growing.full.add(key)
        return False

    def _in_new_bin(self, group: PendingGroup, requests: Ints, pod: str, choices: Sequence[DomainChoice]) -> bool:
        if self._required_on_host(group):
            return False
        for options in self._options_by_weight:
            for choice in choices:
                if self._growing_bins.open(group, choice, requests, pod, options):
                    self._domain_counts.take(group.rules, choice.where, 1)
                    return True
        return False


def _all_relaxed(group: PendingGroup) -> Preferences:
    preferences = group.preferences
    while True:
        relaxed = relax(group.pod_group, preferences, None)
        if relaxed is None or relaxed == preferences:
            return preferences
        preferences = relaxed
