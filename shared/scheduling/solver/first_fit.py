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
from shared.scheduling.solver.packing import Bin, variety
from shared.scheduling.topology.feasibility import NO_CAP
from shared.scheduling.topology.preferences import give_up_one

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.solver.domain_assignment import Choice, Group
    from shared.scheduling.solver.packing import Packer
    from shared.scheduling.state.existing_capacity import Ground
    from shared.scheduling.topology.feasibility import HostRules, Judge
    from shared.scheduling.topology.pod_groups import PodClass
    from shared.scheduling.topology.preferences import Wishes
    from shared.scheduling.topology.topology import Topology

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]
    Sizes = list[tuple[Ints, list[str]]]


@dataclass(eq=False)
class _Machine:
    """A machine that is being filled: the rows it may still be, and what its pods have settled."""

    bin: Bin
    pool: int
    rows: Ints
    where: dict[str, str]
    count: int = 0
    present: dict[int, int] = field(default_factory=dict)
    caps: dict[int, int] = field(default_factory=dict)
    full: set[tuple[int, bytes]] = field(default_factory=set)
    reserved: Ints | None = None


@dataclass(frozen=True, eq=False)
class _Waiting:
    """One pod, with its group as it was before any preference was given up."""

    group: Group
    requests: Ints
    pod: str


class FirstFit:
    """Places pods one by one; what it buys is in the packer's bins."""

    def __init__(
        self,
        judge: Judge,
        topology: Topology,
        ground: Ground,
        packer: Packer,
        regroup: Callable[[PodClass, Wishes, Sizes], Group],
        *,
        cautious: bool,
        favourite: str,
    ) -> None:
        self._judge = judge
        self._market = judge.market
        self._ground = ground
        self._packer = packer
        self._limits = packer.limits
        self._domains = topology.domains
        self._dealer = Dealer(judge, topology, ground, topology.domains, favourite)
        self._regroup = regroup
        self._cautious = cautious
        self._machines: list[_Machine] = []
        self._choices: dict[int, list[Choice]] = {}
        self._groups: dict[tuple[int, Wishes], Group] = {}
        self._failed: dict[tuple[int, bytes], int] = {}
        self._version = 0
        self._weights = sorted({p.weight for p in self._market.pools}, reverse=True)
        self._tier = np.array([p.weight for p in self._market.pools], np.int64)[self._market.pool_of]
        self.given_up = 0

    def run(self, groups: Iterable[Group]) -> list[Group]:
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
        value(self._market, [item for m in self._machines for item, _ in m.bin.content])
        left_over = self._back(queue)
        for group in (*asked, *self._groups.values()):
            group.sizes = []  # what is given back to them later is all that has no place
        return left_over

    def _order(self, requests: Ints) -> tuple[int, ...]:
        """CPU, then memory, then the rest; the largest first."""
        place = {r: i for i, r in enumerate(self._market.resources)}
        first = [place[r] for r in ("cpu", "memory") if r in place]
        rest = [i for i in range(len(requests)) if i not in first]
        return tuple(-int(requests[i]) for i in (*first, *rest))

    def _back(self, queue: Sequence[_Waiting]) -> list[Group]:
        found: dict[int, Group] = {}
        for waiting in queue:
            key = id(waiting.group)
            if key not in found:
                found[key] = self._regroup(waiting.group.pods, self._last(waiting.group), [])
            found[key].sizes.append((waiting.requests, [waiting.pod]))
        return list(found.values())

    def _last(self, group: Group) -> Wishes:
        wishes = group.wishes
        while True:
            fewer = give_up_one(group.pods, wishes, None)
            if fewer is None or fewer == wishes:
                return wishes
            wishes = fewer

    # --- one pod ---

    def _try(self, waiting: _Waiting) -> bool:
        key = (id(waiting.group), waiting.requests.tobytes())
        if self._failed.get(key) == self._version:
            return False
        group, steps = waiting.group, 0
        while not self._place(group, waiting.requests, waiting.pod):
            wishes = give_up_one(group.pods, group.wishes, group.tried)
            if wishes is None:
                self._failed[key] = self._version
                return False
            steps += 1
            group = self._relaxed(group, wishes)
        self.given_up += steps
        self._version += 1
        return True

    def _relaxed(self, group: Group, wishes: Wishes) -> Group:
        key = (id(group.pods), wishes)
        found = self._groups.get(key)
        if found is None:
            found = self._groups[key] = self._regroup(group.pods, wishes, [(group.sizes[0][0], [group.sizes[0][1][0]])])
        return found

    def _place(self, group: Group, requests: Ints, pod: str) -> bool:
        choices = self._choices.get(id(group))
        if choices is None:
            choices = self._choices[id(group)] = self._dealer.choices(group)
        open_ = [c for c in choices if self._domains.room(group.rules, c.where) > 0]
        open_.sort(key=lambda c: self._crowded(group, c))
        return bool(open_) and (
            self._on_ground(group, requests, pod, open_)
            or self._beside(group, requests, pod, open_)
            or self._alone(group, requests, pod, open_)
        )

    def _crowded(self, group: Group, choice: Choice) -> tuple[bool, int]:
        """The emptiest domains first, those that upset nobody's spread before others."""
        counts = sum(self._domains.count(t, choice.where[self._domains.keys[t]]) for t in group.rules.even)
        return self._domains.polite(group.rules, choice.where) <= 0, counts

    def _on_ground(self, group: Group, requests: Ints, pod: str, open_: Sequence[Choice]) -> bool:
        if not len(self._ground):
            return False
        near = self._near(group)
        for choice in open_:
            if choice.kind.places.any():
                item = Item(choice.kind, requests, [pod], owner=group, where=choice.where)
                if self._ground.place(item, 1, near):
                    self._domains.take(group.rules, choice.where, 1)
                    return True
        return False

    def _near(self, group: Group) -> tuple[int, ...]:
        """The rules whose pods must be on the host already: all, unless the pod is the first of all of them."""
        first = all(group.host.match.get(t) and not self._anywhere(t) for t in group.near)
        return () if first else group.near

    def _anywhere(self, term: int) -> bool:
        present = self._ground.hosts.present.get(term)
        return (present is not None and bool(present.any())) or any(m.present.get(term) for m in self._machines)

    def _beside(self, group: Group, requests: Ints, pod: str, open_: Sequence[Choice]) -> bool:
        near = self._near(group)
        size = requests.tobytes()
        for machine in sorted(self._machines, key=lambda m: m.count):
            if near and not all(machine.present.get(t) for t in near):
                continue
            if not _bears(machine, group.host):
                continue
            for choice in open_:
                kind = choice.kind
                if any(machine.where.get(k, v) != v for k, v in choice.where.items()):
                    continue
                if (kind.mask_key, size) in machine.full:
                    continue
                if self._join(machine, group, choice, requests, pod):
                    return True
                machine.full.add((kind.mask_key, size))
        return False

    def _alone(self, group: Group, requests: Ints, pod: str, open_: Sequence[Choice]) -> bool:
        if self._near(group):
            return False
        for weight in self._weights:
            for choice in open_:
                if self._open(group, choice, requests, pod, weight):
                    return True
        return False

    # --- machines ---

    def _join(self, machine: _Machine, group: Group, choice: Choice, requests: Ints, pod: str) -> bool:
        kind = choice.kind
        offerings = machine.bin.offerings & kind.offerings
        if not offerings.any():
            return False
        rows = machine.rows[kind.rows[machine.rows]]
        asked = kind.custom[rows]
        custom = machine.bin.custom or int(asked.max(initial=0))
        rows = rows[(asked == 0) | (asked == custom)]
        if custom != machine.bin.custom and any(k.custom[rows].any() for k in machine.bin.kinds):
            return False
        used = machine.bin.used + requests
        rows = rows[holds(self._market.free[rows], used)]
        rows = rows[np.isfinite(self._market.price[rows][:, offerings]).any(1)]
        if not len(rows) or not self._reserve(machine, rows, offerings):
            return False
        machine.rows, machine.bin.used, machine.bin.offerings, machine.bin.custom = rows, used, offerings, custom
        self._put(machine, group, choice, requests, pod)
        return True

    def _put(self, machine: _Machine, group: Group, choice: Choice, requests: Ints, pod: str) -> None:
        content = machine.bin.content
        for item, pods in content:
            if item.owner is group and item.kind is choice.kind and item.requests is requests:
                pods.append(pod)
                break
        else:
            content.append((Item(choice.kind, requests, [], owner=group, where=choice.where), [pod]))
        machine.where.update(choice.where)
        machine.count += 1
        for term, n in group.host.match.items():
            machine.present[term] = machine.present.get(term, 0) + n
        for term, cap in group.host.cap.items():
            machine.caps[term] = min(machine.caps.get(term, cap), cap)
        self._domains.take(group.rules, choice.where, 1)

    def _open(self, group: Group, choice: Choice, requests: Ints, pod: str, weight: int) -> bool:
        kind, market = choice.kind, self._market
        rows = np.flatnonzero(kind.rows & (self._tier == weight))
        rows = rows[holds(market.free[rows], requests)]
        if not len(rows) or not _bears(_NOBODY, group.host):
            return False
        price = market.price[rows][:, kind.offerings].min(1)
        rows, price = rows[np.isfinite(price)], price[np.isfinite(price)]
        cheapest: dict[int, float] = {}
        for pool, cost in zip(market.pool_of[rows].tolist(), price.tolist(), strict=True):
            cheapest[pool] = min(cost, cheapest.get(pool, cost))
        for pool in sorted(cheapest, key=lambda p: (cheapest[p], p)):
            mine = rows[market.pool_of[rows] == pool]
            custom = int(kind.custom[mine[0]])
            mine = mine[kind.custom[mine] == custom]
            made = Bin(int(mine[0]), kind.offerings, custom, requests.copy())
            machine = _Machine(made, pool, mine, {})
            if not self._reserve(machine, mine, kind.offerings):
                continue
            if self._cautious and machine.reserved is not None:
                machine.rows = mine[self._limits.sizes(mine, machine.reserved)]
            self._packer.bins.append(made)
            self._machines.append(machine)
            self._put(machine, group, choice, requests, pod)
            return True
        return False

    def _reserve(self, machine: _Machine, rows: Ints, offerings: Bools) -> bool:
        """Counts the machine as what it may be now against its pool's limits, if these and minValues allow it."""
        pool = self._market.pools[machine.pool]
        various = not (self._packer.strict and pool.min_values)
        if not self._limits.counted(machine.pool):
            return various or variety(self._market, pool, rows, offerings)
        if self._cautious and machine.reserved is not None:
            return various or variety(self._market, pool, rows, offerings)
        if machine.reserved is not None:
            self._limits.release(machine.pool, machine.reserved)
        found = self._bound(machine.pool, rows, offerings, various=various)
        if found is not None:
            machine.reserved = found
        if machine.reserved is not None:
            self._limits.reserve(machine.pool, machine.reserved)
        return found is not None

    def _bound(self, pool: int, rows: Ints, offerings: Bools, *, various: bool) -> Ints | None:
        """The most that a machine may be so that the limits are kept; None if no such row is left."""
        limits = self._limits
        rows = rows[limits.affordable(pool, rows)]
        if not len(rows):
            return None
        if self._cautious:
            enough = various or variety(self._market, self._market.pools[pool], rows, offerings)
            return limits.most(rows) if enough else None
        price = self._market.price[rows][:, offerings].min(1)
        share = limits.share(pool, rows)
        order = rows[np.lexsort((rows, price, share))]
        if various:
            return limits.most(order[:1])
        for n in range(1, len(order) + 1):
            most = limits.most(order[:n])
            if not limits.affordable_size(pool, most):
                return None
            if variety(self._market, self._market.pools[pool], rows[limits.sizes(rows, most)], offerings):
                return most
        return None

    def _settle(self, machine: _Machine) -> None:
        """The cheapest row that the machine may be."""
        rows, made = machine.rows, machine.bin
        if machine.reserved is not None:
            made.reserved = machine.reserved
            rows = rows[self._limits.sizes(rows, machine.reserved)]
        else:
            self._limits.take(int(rows[0]))
        price = self._market.price[rows][:, made.offerings].min(1)
        made.row = int(rows[np.lexsort((rows, price))[0]])


_NOBODY = _Machine(Bin(0, np.zeros(0, np.bool_), 0, np.zeros(0, np.int64)), 0, np.zeros(0, np.int64), {})


def _bears(machine: _Machine, rules: HostRules) -> bool:
    """Whether a pod with these rules and the machine's pods bear each other."""
    for term, weight in rules.match.items():
        cap = min(machine.caps.get(term, NO_CAP), rules.cap.get(term, NO_CAP))
        if machine.present.get(term, 0) + weight > cap:
            return False
    return all(machine.present.get(t, 0) <= cap for t, cap in rules.cap.items() if t not in rules.match)
