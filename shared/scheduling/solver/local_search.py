"""Second thoughts: a few machines at a time are taken apart and put together again, if that is cheaper.

Buying one machine after the other is short-sighted at the end, where the last pods get what happens to be left. So some
machines that waste most are emptied together, and every way to hold their pods in one or two machines (after one that
serves well) is priced at once. Only what is strictly cheaper is kept, so this never makes an answer worse.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import TYPE_CHECKING

import numpy as np

from shared.scheduling.solver.domain_assignment import PendingGroup
from shared.scheduling.solver.fit import Item, fill_options, front, holds, holds_each
from shared.scheduling.solver.packing import Bin, Lot, OptionSet, as_item, fitting, lots_of, prices
from shared.scheduling.solver.price_bound import PriceBound
from shared.scheduling.solver.residual import Spare
from shared.scheduling.state.min_values import satisfies_min_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.solver.packing import Packer
    from shared.scheduling.topology.feasibility import Feasibility

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

_LEAST_GAIN = 1e-9
_FIRST_TRIED = 6
_ALL_AT_ONCE = 12
_FOUR = 4
_WORST = 48
_MATES = 8
_TRIPLES = [(j, k) for j in range(4) for k in range(j + 1, 5)]


@dataclass(frozen=True)
class _Part:
    """One machine of a plan: its row, custom labels, and how many of each lot."""

    option: int
    custom: int
    counts: Ints


@dataclass(frozen=True)
class _Plan:
    """Machines that hold all the lots, and their price."""

    price: float
    parts: tuple[_Part, ...]


class Improver:
    """Takes bins apart and puts them together again, for as long as its budget of fillings lasts."""

    def __init__(self, packer: Packer, budget: int) -> None:
        self._packer = packer
        self._launch_options = packer.launch_options
        self._budget = budget
        self._options: dict[tuple[object, ...], tuple[Ints, Floats, int]] = {}
        self._weights = np.array([p.weight for p in self._launch_options.templates], np.int64)

    def run(self) -> None:
        """Improves the packer's bins in place."""
        packer = self._packer
        free = [b for b in packer.bins if b.reserved is None and not _belongs_together(b)]
        for weight in sorted(set(self._weights.tolist()), reverse=True):
            mine = [b for b in free if self._weights[self._launch_options.template_of[b.option]] == weight]
            self._improve(mine, weight)

    def _improve(self, bins: list[Bin], weight: int) -> None:
        tried: set[tuple[object, ...]] = set()
        waste = self._waste(bins)
        self._bound = PriceBound(self._launch_options, (self._weights == weight)[self._launch_options.template_of])
        self._bounds_of_bins: dict[int, tuple[Floats, float, float]] = {}
        while self._budget > 0 and bins:
            ranked = nsmallest(max(_WORST, _ALL_AT_ONCE), bins, key=lambda b: (-waste[id(b)], b.content[0][1][0]))
            fewer = self._one_emptied(bins, ranked, weight) if len(bins) <= _ALL_AT_ONCE else None
            if fewer is not None:
                bins, waste = fewer, self._waste(fewer)
                self._bounds_of_bins.clear()
                continue
            gained = False
            for chosen in self._subsets(ranked, len(bins)):
                key = tuple(sorted([_looks(b) for b in chosen]))
                if key in tried:
                    continue
                tried.add(key)
                if not self._can_gain(chosen):
                    continue
                made = self._again(chosen, weight)
                if self._budget <= 0:
                    gained = False
                    break
                if made is not None:
                    gone = {id(b) for b in chosen}
                    bins = [b for b in bins if id(b) not in gone] + made
                    waste.update(self._waste(made))
                    for bin_ in made:
                        self._bounds_of_bins.pop(id(bin_), None)
                    gained = True
                    break
            if not gained:
                return

    def _can_gain(self, chosen: Sequence[Bin]) -> bool:
        """Whether the pods of these bins may cost less than they do."""
        bounds = [self._bounds_of_bins.get(id(b)) or self._bound_of(b) for b in chosen]
        shares = np.add.reduce([b[0] for b in bounds])
        return max(float(shares.max()), *(b[1] for b in bounds)) < sum(b[2] for b in bounds) - _LEAST_GAIN

    def _bound_of(self, bin_: Bin) -> tuple[Floats, float, float]:
        total: Floats | float = 0.0
        least = 0.0
        for item, pods in bin_.content:
            of = [self._bound.of(f, item.requests) for f in (_alternatives(item) or (item.feasibility,))]
            total = total + np.minimum.reduce([o[0] for o in of]) * len(pods)
            least = max(least, min(o[1] for o in of))
        bound = (np.asarray(total), least, bin_.price(self._launch_options))
        self._bounds_of_bins[id(bin_)] = bound
        return bound

    def _one_emptied(self, bins: list[Bin], ranked: Sequence[Bin], weight: int) -> list[Bin] | None:
        """The bins after one of them, the worst first, was emptied into the others; None where that never pays."""
        for bin_ in ranked if len(bins) > 1 else ():
            others = [b for b in bins if b is not bin_]
            rest = self._emptied(bin_, others, weight)
            if rest is not None:
                return others + rest
        return None

    def _emptied(self, bin_: Bin, others: Sequence[Bin], weight: int) -> list[Bin] | None:
        """The bin's pods in the room that others have left, and machines for the rest; None if that saves nothing."""
        packer = self._packer
        takers = [b for b in others if not self._is_choosy(b)]
        if self._budget <= 0 or not takers:
            return None
        lots = lots_of([replace(i, pods=list(pods)) for i, pods in bin_.content], hosts=True)
        counts = [lot.count for lot in lots]
        self._budget -= len(lots) + 4
        known = [(b, b.content, b.used, b.offerings) for b in takers]
        for b in takers:
            b.content = list(b.content)
        spare = Spare(self._launch_options, takers)
        for lot in lots:
            spare.put(lot)
        spare.close()
        rest = [lot for lot in lots if lot.count]
        if [lot.count for lot in lots] != counts:
            before = bin_.price(self._launch_options)
            packer.limits.remove(bin_.option)
            made = self._bought(rest, before, weight) if rest else []
            if made is not None:
                packer.bins = [b for b in packer.bins if b is not bin_]
                return made
            packer.limits.add(bin_.option)
        for b, content, used, offerings in known:
            b.content, b.used, b.offerings = content, used, offerings
        return None

    def _is_choosy(self, bin_: Bin) -> bool:
        """Whether its claim must keep several values of a label, so that what comes may cost it these."""
        return self._packer.strict and bool(
            self._launch_options.templates[self._launch_options.template_of[bin_.option]].min_values
        )

    def _bought(self, lots: Sequence[Lot], below: float, weight: int) -> list[Bin] | None:
        """Machines for these lots that cost less than that, bought; None where there are none."""
        plan = self._planned(lots, weight, before=below, least=below - _LEAST_GAIN, first=False)
        return None if plan is None else self._opened(plan, lots)

    def _planned(self, lots: Sequence[Lot], weight: int, *, before: float, least: float, first: bool) -> _Plan | None:
        """The best that costs less than ``least`` and that limits bear; ``before`` bounds the search."""
        tier = (self._weights == weight)[self._launch_options.template_of]
        counts = np.array([lot.count for lot in lots], np.int64)
        hosts = any(lot.feasibility.host.cap for lot in lots)
        of = [self._bound.of(lot.feasibility, lot.requests) for lot in lots]
        self._lot_bounds = np.stack([b[0] for b in of]), np.array([b[1] for b in of])
        if float(self._least(counts[:, None])[0]) >= least:
            return None
        plan = self._best(lots, counts, tier, before, hosts=hosts, first=first)
        if plan is None or plan.price >= least:
            return None
        return plan if self._packer.limits.allows_all([part.option for part in plan.parts]) else None

    def _opened(self, plan: _Plan, lots: Sequence[Lot], owners: Mapping[int, Item] | None = None) -> list[Bin]:
        """The plan's machines with their pods. ``owners``: as whose pods those of an item (by id) are known after."""
        made = []
        for part in plan.parts:
            content = [pair for lot, n in zip(lots, part.counts.tolist(), strict=True) if n for pair in lot.take(n)]
            known = content if owners is None else [(owners[id(i)], pods) for i, pods in content]
            made.append(self._packer.open(part.option, part.custom, known))
        return made

    def _subsets(self, ranked: Sequence[Bin], count: int) -> Iterator[list[Bin]]:
        """Which bins to take apart together: the worst alone, and with others that may share; last all, if few."""
        worst = ranked[:_WORST]
        for i, first in enumerate(worst):
            later = [b for b in worst[i + 1 :] if (b.offerings & first.offerings).any()][:_MATES]
            yield [first]
            for mate in later:
                yield [first, mate]
            for j, k in _TRIPLES:
                if k < len(later):
                    yield [first, later[j], later[k]]
            if len(later) >= _FOUR - 1:
                yield [first, *later[: _FOUR - 1]]
        if 1 < count <= _ALL_AT_ONCE:
            yield list(ranked)

    def _waste(self, bins: Sequence[Bin]) -> dict[int, float]:
        """What each bin costs beyond what its pods are worth, by its id."""
        return {
            id(b): price - sum([item.worth * len(pods) for item, pods in b.content])
            for b, price in zip(bins, prices(self._launch_options, bins).tolist(), strict=True)
        }

    def _again(self, chosen: Sequence[Bin], weight: int) -> list[Bin] | None:
        """The pods of these bins in other machines that cost less; None if none are found."""
        before = sum(b.price(self._launch_options) for b in chosen)
        original = [item for b in chosen for item, _ in b.content]
        items = [
            Item(item.feasibility, item.requests, list(pods), item.worth, item.owner, item.where)
            for b in chosen
            for item, pods in b.content
        ]
        packer = self._packer
        for b in chosen:
            packer.limits.remove(b.option)
        found: tuple[_Plan, list[Lot], list[Item]] | None = None
        least = before - _LEAST_GAIN
        for reading in self._readings(items):
            lots = lots_of(reading, hosts=any(i.feasibility.host.cap for i in reading))
            plan = self._planned(lots, weight, before=before, least=least, first=len(chosen) > 1)
            if plan is not None:
                found, least = (plan, lots, reading), plan.price - _LEAST_GAIN
            if self._budget <= 0:
                break
        if found is None:
            for b in chosen:
                packer.limits.add(b.option)
            return None
        plan, lots, reading = found
        gone = {id(b) for b in chosen}
        packer.bins = [b for b in packer.bins if id(b) not in gone]
        owners = {
            id(new): old if new.feasibility is old.feasibility else new
            for new, old in zip(reading, original, strict=True)
        }
        return self._opened(plan, lots, owners)

    def _readings(self, items: list[Item]) -> Iterator[list[Item]]:
        """The items as they are; then with all pods that may choose alike by another alternative of their affinity.

        Which alternative serves best shows only beside other pods, long after one was chosen by what a pod costs.
        """
        yield items
        alike: dict[tuple[int, ...], dict[int, tuple[Feasibility, ...]]] = {}
        for item in items:
            feasibilities = _alternatives(item)
            if feasibilities:
                alike.setdefault((item.feasibility.mask_key, *(k.mask_key for k in feasibilities)), {})[id(item)] = (
                    feasibilities
                )
        for (now, *masks), members in alike.items():
            for n, mask in enumerate(masks):
                if mask != now:
                    yield [
                        replace(i, feasibility=members[id(i)][n], pods=list(i.pods)) if id(i) in members else i
                        for i in items
                    ]

    def _best(
        self, lots: Sequence[Lot], counts: Ints, tier: Bools, below: float, *, hosts: bool, first: bool
    ) -> _Plan | None:
        """The cheapest of: one machine for all; one filled and one for the rest; and, after a good first, the same."""
        best = self._one(lots, counts, tier, hosts=hosts)
        option_sets = [
            (o, *self._filled(o, lots, counts, hosts=hosts, turned=turned))
            for o in self._packer.option_sets(lots, tier)
            for turned in (False, True)
        ]
        ranked: list[tuple[float, OptionSet, int, Ints]] = []
        for option_set, filled, worth in option_sets:
            plan = self._two(option_set, filled, lots, counts, tier, hosts=hosts)
            if plan is not None and (best is None or plan.price < best.price):
                best = plan
            rate = worth / np.maximum(option_set.price, 1e-9)
            ranked += [
                (-float(rate[at]), option_set, at, filled[:, at])
                for at in np.argsort(-rate, kind="stable")[:_FIRST_TRIED].tolist()
            ]
        if first and self._budget > 0:
            limit = below if best is None else min(below, best.price)
            for _, option_set, at, taken in sorted(ranked, key=lambda r: r[0])[:_FIRST_TRIED]:
                rest = counts - taken
                if not taken.any() or not rest.any() or float(option_set.price[at]) >= limit:
                    continue
                if float(option_set.price[at]) + float(self._least(rest[:, None])[0]) >= limit - _LEAST_GAIN:
                    continue
                some = self._best(lots, rest, tier, limit, hosts=hosts, first=False)
                if some is not None and some.price + float(option_set.price[at]) < limit:
                    part = _Part(int(option_set.options[at]), option_set.custom, taken)
                    if self._enough(part, lots):
                        limit = some.price + float(option_set.price[at])
                        best = _Plan(limit, (part, *some.parts))
        return best

    def _least(self, counts: Ints) -> Floats:
        """A lower bound of the price of so many pods of each lot (lots x cases)."""
        shares, machine = self._lot_bounds
        bound: Floats = np.maximum((counts.T @ shares).max(1), np.where(counts > 0, machine[:, None], 0.0).max(0))
        return bound

    def _filled(
        self, option_set: OptionSet, lots: Sequence[Lot], counts: Ints, *, hosts: bool, turned: bool
    ) -> tuple[Ints, Floats]:
        """How many of each lot every row of the option takes, and what that is worth; ``turned``: the least first."""
        at = {id(lot): i for i, lot in enumerate(lots)}
        mine = [lot for lot in option_set.lots if counts[at[id(lot)]]]
        if turned:
            mine.reverse()
        self._budget -= len(mine) + 4
        found = np.zeros((len(lots), len(option_set.options)), np.int64)
        items = [as_item(lot, int(counts[at[id(lot)]]), hosts=hosts) for lot in mine]
        fill = fill_options(self._launch_options.free[option_set.options], option_set.options, items, option_set.custom)
        for lot, option in zip(mine, fill.counts, strict=True):
            found[at[id(lot)]] = option
        return found, fill.worth

    def _one(self, lots: Sequence[Lot], counts: Ints, tier: Bools, *, hosts: bool) -> _Plan | None:
        """One machine for everything, the cheapest that holds it."""
        present = np.flatnonzero(counts).tolist()
        options, price, custom = self._common([lots[i].feasibility for i in present], tier)
        if hosts and not _bearable(lots, counts):
            return None
        used = sum((lots[i].requests * int(counts[i]) for i in present), np.zeros_like(lots[0].requests))
        held = np.flatnonzero(holds(self._launch_options.free[options], used))
        for at in held.tolist():
            part = _Part(int(options[at]), custom, counts)
            if self._enough(part, lots):
                return _Plan(float(price[at]), (part,))
        return None

    def _two(
        self, option_set: OptionSet, filled: Ints, lots: Sequence[Lot], counts: Ints, tier: Bools, *, hosts: bool
    ) -> _Plan | None:
        """One machine filled, and the cheapest for the rest, over all rows of the option at once."""
        requests = np.stack([lot.requests for lot in lots])
        rest = counts[:, None] - filled
        needed = rest.T @ requests
        total = np.full(len(option_set.options), np.inf)
        second = np.zeros(len(option_set.options), np.int64)
        customs = np.zeros(len(option_set.options), np.int64)
        patterns: dict[bytes, list[int]] = {}
        lacking = rest.T > 0
        for at in np.flatnonzero(filled.any(0) & lacking.any(1)).tolist():
            patterns.setdefault(lacking[at].tobytes(), []).append(at)
        for members in patterns.values():
            where = np.array(members)
            left = np.flatnonzero(lacking[members[0]])
            options, price, custom = self._common([lots[i].feasibility for i in left.tolist()], tier)
            if not len(options):
                continue
            held = holds_each(self._launch_options.free[options], needed[where])
            cheapest = held.argmax(1)
            found = held[np.arange(len(where)), cheapest]
            total[where] = np.where(found, option_set.price[where] + price[cheapest], np.inf)
            second[where] = options[cheapest]
            customs[where] = custom
        for at in np.argsort(total, kind="stable").tolist():
            if not np.isfinite(total[at]):
                return None
            if hosts and not _bearable(lots, rest[:, at]):
                continue
            parts = (
                _Part(int(option_set.options[at]), option_set.custom, filled[:, at]),
                _Part(int(second[at]), int(customs[at]), rest[:, at]),
            )
            if all(self._enough(p, lots) for p in parts):
                return _Plan(float(total[at]), parts)
        return None

    def _common(self, feasibilities: Sequence[Feasibility], tier: Bools) -> tuple[Ints, Floats, int]:
        """The rows that all these kinds may go to together, cheapest first, their prices, and their custom labels."""
        distinct = {k.mask_key: k for k in feasibilities}
        affordable = tier & self._packer.limits.allowed_options()
        key = (affordable.tobytes(), frozenset(distinct))
        found = self._options.get(key)
        if found is None:
            launch_options, limits = self._launch_options, self._packer.limits
            some = list(distinct.values())
            offerings = np.logical_and.reduce([k.offerings for k in some])
            asked = np.stack([k.custom for k in some])
            custom = asked.max(0)
            price = launch_options.price[:, offerings].min(1, initial=np.inf)
            ok = affordable & np.isfinite(price) & np.logical_and.reduce([k.options for k in some])
            ok &= ((asked == 0) | (asked == custom)).all(0)
            options = np.flatnonzero(ok)
            number = int(custom[options[0]]) if len(options) else 0
            options = options[custom[options] == number]
            if any(
                launch_options.templates[p].min_values or limits.is_near(p)
                for p in np.unique(launch_options.template_of[options]).tolist()
            ):
                options = options[np.argsort(price[options], kind="stable")]
            else:
                options = options[front(launch_options.free[options], price[options])]
            found = self._options[key] = (options, price[options], number)
        return found

    def _enough(self, part: _Part, lots: Sequence[Lot]) -> bool:
        pool = self._launch_options.templates[self._launch_options.template_of[part.option]]
        if not pool.min_values or not self._packer.strict:
            return True
        mine = [(lot, n) for lot, n in zip(lots, part.counts.tolist(), strict=True) if n]
        used = sum((lot.requests * n for lot, n in mine), np.zeros_like(lots[0].requests))
        offerings = np.logical_and.reduce([lot.feasibility.offerings for lot, _ in mine])
        options = fitting(
            self._launch_options, pool, [lot.feasibility for lot, _ in mine], used, offerings, part.custom
        )
        return satisfies_min_values(self._launch_options, pool, options, offerings)


def _bearable(lots: Sequence[Lot], counts: Ints) -> bool:
    """Whether so many pods bear each other on one host."""
    present: dict[int, int] = {}
    caps: dict[int, int] = {}
    for lot, n in zip(lots, counts.tolist(), strict=True):
        if n:
            for term, weight in lot.feasibility.host.match.items():
                present[term] = present.get(term, 0) + weight * n
            for term, cap in lot.feasibility.host.cap.items():
                caps[term] = min(caps.get(term, cap), cap)
    return all(present.get(term, 0) <= cap for term, cap in caps.items())


def _alternatives(item: Item) -> tuple[Feasibility, ...]:
    """The kinds among which the item's pods may choose; none where there is but one."""
    return tuple(item.owner.others.get(tuple(item.where.items()), ())) if isinstance(item.owner, PendingGroup) else ()


def _looks(bin_: Bin) -> tuple[object, ...]:
    """What is equal for bins of which one may be taken apart as well as the other."""
    content: dict[tuple[object, ...], int] = {}
    for item, pods in bin_.content:
        masks = (item.feasibility.mask_key, *(k.mask_key for k in _alternatives(item)))
        key = (masks, item.feasibility.host.key, item.requests.tobytes())
        content[key] = content.get(key, 0) + len(pods)
    return (bin_.option, bin_.custom, tuple(sorted(content.items())))


def _belongs_together(bin_: Bin) -> bool:
    """Whether a pod is there to be beside another: such machines are not taken apart."""
    return any(isinstance(item.owner, PendingGroup) and item.owner.host_affinity for item, _ in bin_.content)
