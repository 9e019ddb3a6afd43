"""Pod by pod, the largest first, each where it fits first: the plan for when not everybody gets in.

Counting decides how many machines serve all; it doesn't decide whom to leave out where a limit, a full node or two
rules at once stand in the way. Here every pod takes its place before the next is looked at, so that rules hold after
each step. Two ways with limits: a machine counts with the largest row it may still become from its beginning, as
Karpenter has it, or with the least that holds its pods, and grows. Source: docs/facts/karpenter.md, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from shared.scheduling.solver.domain_assignment import Dealer
from shared.scheduling.solver.fit import Item, holds, value
from shared.scheduling.solver.packing import Bin
from shared.scheduling.state.min_values import satisfies_min_values
from shared.scheduling.topology.host_counts import NO_CAP
from shared.scheduling.topology.preferences import relax

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.solver.domain_assignment import Choice, PendingGroup
    from shared.scheduling.solver.existing_capacity import ExistingCapacity
    from shared.scheduling.solver.packing import Packer
    from shared.scheduling.topology.feasibility import FeasibilityChecker
    from shared.scheduling.topology.host_counts import HostRules
    from shared.scheduling.topology.pod_groups import PodGroup
    from shared.scheduling.topology.preferences import Preferences
    from shared.scheduling.topology.topology import Topology

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]
    Sizes = list[tuple[Ints, list[str]]]


@dataclass(eq=False)
class _Machine:
    """A machine that is being filled: the rows it may still be, and what its pods have settled."""

    bin: Bin
    pool: int
    options: Ints
    where: dict[str, str]
    count: int = 0
    present: dict[int, int] = field(default_factory=dict)
    caps: dict[int, int] = field(default_factory=dict)
    full: set[tuple[int, bytes]] = field(default_factory=set)
    reserved: Ints | None = None


@dataclass(frozen=True, eq=False)
class _Waiting:
    """One pod, with its group as it was before any preference was given up."""

    group: PendingGroup
    requests: Ints
    pod: str


class FirstFit:
    """Places pods one by one; what it buys is in the packer's bins."""

    def __init__(
        self,
        checker: FeasibilityChecker,
        topology: Topology,
        existing_capacity: ExistingCapacity,
        packer: Packer,
        regroup: Callable[[PodGroup, Preferences, Sizes], PendingGroup],
        *,
        cautious: bool,
        preferred_domain: str,
    ) -> None:
        self._checker = checker
        self._launch_options = checker.launch_options
        self._existing_capacity = existing_capacity
        self._packer = packer
        self._limits = packer.limits
        self._domain_counts = topology.domain_counts
        self._dealer = Dealer(checker, topology, existing_capacity, topology.domain_counts, preferred_domain)
        self._regroup = regroup
        self._cautious = cautious
        self._machines: list[_Machine] = []
        self._choices: dict[int, list[Choice]] = {}
        self._groups: dict[tuple[int, Preferences], PendingGroup] = {}
        self._failed: dict[tuple[int, bytes], int] = {}
        self._version = 0
        self._weights = sorted({p.weight for p in self._launch_options.templates}, reverse=True)
        self._tier = np.array([p.weight for p in self._launch_options.templates], np.int64)[
            self._launch_options.template_of
        ]
        self.relaxed = 0

    def run(self, groups: Iterable[PendingGroup]) -> list[PendingGroup]:
        """Places the pods of the groups; those without a place come back in groups."""
        asked = list(groups)
        queue = sorted(
            (_Waiting(g, r, pod) for g in asked for r, pods in g.sizes for pod in pods),
            key=lambda w: (self._order(w.requests), w.pod),
        )
        while queue:
            left = [w for w in queue if not self._try(w)]
            if len(left) == len(queue):
                break
            queue = left
        for machine in self._machines:
            self._settle(machine)
        value(self._launch_options, [item for m in self._machines for item, _ in m.bin.content])
        left_over = self._back(queue)
        for group in (*asked, *self._groups.values()):
            group.sizes = []  # what is given back to them later is all that has no place
        return left_over

    def _order(self, requests: Ints) -> tuple[int, ...]:
        """CPU, then memory, then the rest; the largest first."""
        place = {r: i for i, r in enumerate(self._launch_options.resources)}
        first = [place[r] for r in ("cpu", "memory") if r in place]
        rest = [i for i in range(len(requests)) if i not in first]
        return tuple(-int(requests[i]) for i in (*first, *rest))

    def _back(self, queue: Sequence[_Waiting]) -> list[PendingGroup]:
        found: dict[int, PendingGroup] = {}
        for waiting in queue:
            key = id(waiting.group)
            if key not in found:
                found[key] = self._regroup(waiting.group.pod_group, self._last(waiting.group), [])
            found[key].sizes.append((waiting.requests, [waiting.pod]))
        return list(found.values())

    def _last(self, group: PendingGroup) -> Preferences:
        preferences = group.preferences
        while True:
            fewer = relax(group.pod_group, preferences, None)
            if fewer is None or fewer == preferences:
                return preferences
            preferences = fewer

    # --- one pod ---

    def _try(self, waiting: _Waiting) -> bool:
        key = (id(waiting.group), waiting.requests.tobytes())
        if self._failed.get(key) == self._version:
            return False
        group, steps = waiting.group, 0
        while not self._place(group, waiting.requests, waiting.pod):
            preferences = relax(group.pod_group, group.preferences, group.tried)
            if preferences is None:
                self._failed[key] = self._version
                return False
            steps += 1
            group = self._relaxed(group, preferences)
        self.relaxed += steps
        self._version += 1
        return True

    def _relaxed(self, group: PendingGroup, preferences: Preferences) -> PendingGroup:
        key = (id(group.pod_group), preferences)
        found = self._groups.get(key)
        if found is None:
            found = self._groups[key] = self._regroup(
                group.pod_group, preferences, [(group.sizes[0][0], [group.sizes[0][1][0]])]
            )
        return found

    def _place(self, group: PendingGroup, requests: Ints, pod: str) -> bool:
        choices = self._choices.get(id(group))
        if choices is None:
            choices = self._choices[id(group)] = self._dealer.choices(group)
        open_ = [c for c in choices if self._domain_counts.room(group.rules, c.where) > 0]
        open_.sort(key=lambda c: self._crowded(group, c))
        return bool(open_) and (
            self._on_existing_node(group, requests, pod, open_)
            or self._beside(group, requests, pod, open_)
            or self._alone(group, requests, pod, open_)
        )

    def _crowded(self, group: PendingGroup, choice: Choice) -> tuple[bool, int]:
        """The emptiest domains first, those that upset nobody's spread before others."""
        counts = sum(
            self._domain_counts.count(t, choice.where[self._domain_counts.keys[t]]) for t in group.rules.topology_spread
        )
        return self._domain_counts.skew_room(group.rules, choice.where) <= 0, counts

    def _on_existing_node(self, group: PendingGroup, requests: Ints, pod: str, open_: Sequence[Choice]) -> bool:
        if not len(self._existing_capacity):
            return False
        near = self._near(group)
        for choice in open_:
            if choice.feasibility.nodes.any():
                item = Item(choice.feasibility, requests, [pod], owner=group, where=choice.where)
                if self._existing_capacity.place(item, 1, near):
                    self._domain_counts.take(group.rules, choice.where, 1)
                    return True
        return False

    def _near(self, group: PendingGroup) -> tuple[int, ...]:
        """The rules whose pods must be on the host already: all, unless the pod is the first of all of them."""
        first = all(group.host.match.get(t) and not self._anywhere(t) for t in group.host_affinity)
        return () if first else group.host_affinity

    def _anywhere(self, term: int) -> bool:
        present = self._existing_capacity.host_counts.present.get(term)
        return (present is not None and bool(present.any())) or any(m.present.get(term) for m in self._machines)

    def _beside(self, group: PendingGroup, requests: Ints, pod: str, open_: Sequence[Choice]) -> bool:
        near = self._near(group)
        size = requests.tobytes()
        for machine in sorted(self._machines, key=lambda m: m.count):
            if near and not all(machine.present.get(t) for t in near):
                continue
            if not _bears(machine, group.host):
                continue
            for choice in open_:
                feasibility = choice.feasibility
                if any(machine.where.get(k, v) != v for k, v in choice.where.items()):
                    continue
                if (feasibility.mask_key, size) in machine.full:
                    continue
                if self._join(machine, group, choice, requests, pod):
                    return True
                machine.full.add((feasibility.mask_key, size))
        return False

    def _alone(self, group: PendingGroup, requests: Ints, pod: str, open_: Sequence[Choice]) -> bool:
        if self._near(group):
            return False
        for weight in self._weights:
            for choice in open_:
                if self._open(group, choice, requests, pod, weight):
                    return True
        return False

    # --- machines ---

    def _join(self, machine: _Machine, group: PendingGroup, choice: Choice, requests: Ints, pod: str) -> bool:
        feasibility = choice.feasibility
        offerings = machine.bin.offerings & feasibility.offerings
        if not offerings.any():
            return False
        options = machine.options[feasibility.options[machine.options]]
        asked = feasibility.custom[options]
        custom = machine.bin.custom or int(asked.max(initial=0))
        options = options[(asked == 0) | (asked == custom)]
        if custom != machine.bin.custom and any(k.custom[options].any() for k in machine.bin.feasibilities):
            return False
        used = machine.bin.used + requests
        options = options[holds(self._launch_options.free[options], used)]
        options = options[np.isfinite(self._launch_options.price[options][:, offerings]).any(1)]
        if not len(options) or not self._reserve(machine, options, offerings):
            return False
        machine.options, machine.bin.used, machine.bin.offerings, machine.bin.custom = options, used, offerings, custom
        self._put(machine, group, choice, requests, pod)
        return True

    def _put(self, machine: _Machine, group: PendingGroup, choice: Choice, requests: Ints, pod: str) -> None:
        content = machine.bin.content
        for item, pods in content:
            if item.owner is group and item.feasibility is choice.feasibility and item.requests is requests:
                pods.append(pod)
                break
        else:
            content.append((Item(choice.feasibility, requests, [], owner=group, where=choice.where), [pod]))
        machine.where.update(choice.where)
        machine.count += 1
        for term, n in group.host.match.items():
            machine.present[term] = machine.present.get(term, 0) + n
        for term, cap in group.host.cap.items():
            machine.caps[term] = min(machine.caps.get(term, cap), cap)
        self._domain_counts.take(group.rules, choice.where, 1)

    def _open(self, group: PendingGroup, choice: Choice, requests: Ints, pod: str, weight: int) -> bool:
        feasibility, launch_options = choice.feasibility, self._launch_options
        options = np.flatnonzero(feasibility.options & (self._tier == weight))
        options = options[holds(launch_options.free[options], requests)]
        if not len(options) or not _bears(_NOBODY, group.host):
            return False
        price = launch_options.price[options][:, feasibility.offerings].min(1)
        options, price = options[np.isfinite(price)], price[np.isfinite(price)]
        cheapest: dict[int, float] = {}
        for pool, cost in zip(launch_options.template_of[options].tolist(), price.tolist(), strict=True):
            cheapest[pool] = min(cost, cheapest.get(pool, cost))
        for pool in sorted(cheapest, key=lambda p: (cheapest[p], p)):
            mine = options[launch_options.template_of[options] == pool]
            custom = int(feasibility.custom[mine[0]])
            mine = mine[feasibility.custom[mine] == custom]
            made = Bin(int(mine[0]), feasibility.offerings, custom, requests.copy())
            machine = _Machine(made, pool, mine, {})
            if not self._reserve(machine, mine, feasibility.offerings):
                continue
            if self._cautious and machine.reserved is not None:
                machine.options = mine[self._limits.within_size(mine, machine.reserved)]
            self._packer.bins.append(made)
            self._machines.append(machine)
            self._put(machine, group, choice, requests, pod)
            return True
        return False

    def _reserve(self, machine: _Machine, options: Ints, offerings: Bools) -> bool:
        """Counts the machine as what it may be now against its pool's limits, if these and minValues allow it."""
        pool = self._launch_options.templates[machine.pool]
        various = not (self._packer.strict and pool.min_values)
        if not self._limits.has_limits(machine.pool):
            return various or satisfies_min_values(self._launch_options, pool, options, offerings)
        if self._cautious and machine.reserved is not None:
            return various or satisfies_min_values(self._launch_options, pool, options, offerings)
        if machine.reserved is not None:
            self._limits.release(machine.pool, machine.reserved)
        found = self._bound(machine.pool, options, offerings, various=various)
        if found is not None:
            machine.reserved = found
        if machine.reserved is not None:
            self._limits.reserve(machine.pool, machine.reserved)
        return found is not None

    def _bound(self, pool: int, options: Ints, offerings: Bools, *, various: bool) -> Ints | None:
        """The most that a machine may be so that the limits are kept; None if no such row is left."""
        limits = self._limits
        options = options[limits.allows(pool, options)]
        if not len(options):
            return None
        if self._cautious:
            enough = various or satisfies_min_values(
                self._launch_options, self._launch_options.templates[pool], options, offerings
            )
            return limits.largest_size(options) if enough else None
        price = self._launch_options.price[options][:, offerings].min(1)
        share = limits.share(pool, options)
        order = options[np.lexsort((options, price, share))]
        if various:
            return limits.largest_size(order[:1])
        for n in range(1, len(order) + 1):
            most = limits.largest_size(order[:n])
            if not limits.allows_size(pool, most):
                return None
            if satisfies_min_values(
                self._launch_options,
                self._launch_options.templates[pool],
                options[limits.within_size(options, most)],
                offerings,
            ):
                return most
        return None

    def _settle(self, machine: _Machine) -> None:
        """The cheapest row that the machine may be."""
        options, made = machine.options, machine.bin
        if machine.reserved is not None:
            made.reserved = machine.reserved
            options = options[self._limits.within_size(options, machine.reserved)]
        else:
            self._limits.add(int(options[0]))
        price = self._launch_options.price[options][:, made.offerings].min(1)
        made.option = int(options[np.lexsort((options, price))[0]])


_NOBODY = _Machine(Bin(0, np.zeros(0, np.bool_), 0, np.zeros(0, np.int64)), 0, np.zeros(0, np.int64), {})


def _bears(machine: _Machine, rules: HostRules) -> bool:
    """Whether a pod with these rules and the machine's pods bear each other."""
    for term, weight in rules.match.items():
        cap = min(machine.caps.get(term, NO_CAP), rules.cap.get(term, NO_CAP))
        if machine.present.get(term, 0) + weight > cap:
            return False
    return all(machine.present.get(t, 0) <= cap for t, cap in rules.cap.items() if t not in rules.match)
