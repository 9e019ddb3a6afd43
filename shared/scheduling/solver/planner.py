"""The rounds of a run: deal, buy, and give up a preference where nothing was found.

Holds what all rounds share: the ground, the counts of topology, the machines bought so far.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from shared.api.labels import HOSTNAME, ZONE
from shared.scheduling.rules.requirements import signature
from shared.scheduling.solver.domain_assignment import Dealer, Group
from shared.scheduling.solver.first_fit import FirstFit
from shared.scheduling.solver.fit import Item, value
from shared.scheduling.solver.host_affinity import Bundler
from shared.scheduling.solver.local_search import Improver
from shared.scheduling.solver.packing import Packer
from shared.scheduling.solver.settling import keep_limits, loosen, settle
from shared.scheduling.state.existing_capacity import Ground
from shared.scheduling.state.node_pool_limits import Limits
from shared.scheduling.topology.domain_counts import DomainRules, Even
from shared.scheduling.topology.feasibility import tolerations_key
from shared.scheduling.topology.preferences import Wishes, all_wishes, give_up_one, no_wishes, requirements
from shared.scheduling.topology.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.decision import Options
    from shared.scheduling.rules.pod_affinity import Namespaces, Term
    from shared.scheduling.solver.packing import Bin
    from shared.scheduling.topology.feasibility import Judge
    from shared.scheduling.topology.pod_groups import PodClass, Sized

    Ints = NDArray[np.int64]


_FEW = 300
_DOMAINS = 5
"""So many zones, or values of other labels, are tried as the favourite."""
_BUDGET = 1500
"""How many fillings of an item into all rows second thoughts may take: some tens of milliseconds."""
_BUDGET_OF_MANY = 80
_HANDFUL = 60
_BUDGET_OF_A_HANDFUL = 4000
_IMPROVED = 2
"""So many of the plans get second thoughts, the best."""
_IMPROVED_OF_A_HANDFUL = 4
_ALL = 1 << 30
_ONE_BY_ONE = 5000
"""Up to so many pods are also placed one by one where the counted plan leaves some without a place."""


def best_plan(
    judge: Judge, spaces: Namespaces, classes: Sequence[tuple[PodClass, list[Sized]]], options: Options
) -> Planner:
    """The plan of a run: the counted one, or one that serves more pods, or as many for less.

    Where zones may be chosen and pods are few, each zone is tried as the favourite. Where pods are left over, or rules
    meet that counting serves badly, pods are placed one by one too.
    """
    counted = Planner(judge, spaces, classes, options)
    counted.run()
    plans = [counted]
    pods = counted.pods
    domains = counted.choice_of_domains() if pods <= _FEW else ()
    for favourite in domains:
        plans.append(Planner(judge, spaces, classes, options, favourite))
        plans[-1].run()
    if pods <= _FEW and any(p.packer.torn for p in plans):
        for favourite in sorted({"", min(plans, key=Planner.rank).favourite}):
            plans.append(Planner(judge, spaces, classes, options, favourite, thrifty=True))
            plans[-1].run()
    left_out = pods <= _ONE_BY_ONE and counted.leaves_some_out()
    if domains or left_out or (pods <= _FEW and counted.is_entangled()):
        luckier = domains if left_out or counted.meets_two_rules() else ()
        for cautious, favourite in product((False, True) if counted.limits.any() else (True,), (*luckier, "")):
            plans.append(Planner(judge, spaces, classes, options, favourite))
            plans[-1].run_one_by_one(cautious=cautious)
        plans = _fair(plans)
    improved = _IMPROVED_OF_A_HANDFUL if pods <= _HANDFUL else _IMPROVED if pods <= _FEW else 1
    tried = sorted(plans, key=Planner.rank)[:improved]
    if pods <= _FEW and counted.meets_two_rules():
        tried += [plan for plan in plans[-1:] if plan not in tried]
    budget = _BUDGET_OF_A_HANDFUL if pods <= _HANDFUL else _BUDGET if pods <= _FEW else _BUDGET_OF_MANY
    for plan in tried:
        plan.improve(budget)
    return min(tried, key=Planner.rank)


def _fair(plans: Sequence[Planner]) -> list[Planner]:
    """Without those that are unfair, of plans of which the last lets the largest pods in first, as Karpenter does.

    A plan that leaves out a pod which that one has a place for must leave out less than a quarter as many.
    """
    known = plans[-1].left_out()
    outs = [plan.left_out() for plan in plans]
    return [plan for plan, out in zip(plans, outs, strict=True) if out <= known or len(out) * 4 < len(known)]


class Planner:
    """Plans all pods of a run."""

    def __init__(
        self,
        judge: Judge,
        spaces: Namespaces,
        classes: Sequence[tuple[PodClass, list[Sized]]],
        options: Options,
        favourite: str = "",
        *,
        thrifty: bool = False,
    ) -> None:
        self._judge = judge
        self.favourite = favourite
        self.given_up = 0
        self._options = options
        market, inventory = judge.market, judge.inventory
        self._place = {r: i for i, r in enumerate(market.resources)}
        self.topology = Topology(judge, spaces, [c for c, _ in classes])
        self.ground = Ground(inventory, market.resources)
        self.limits = Limits(market, inventory)
        self.packer = Packer(market, self.limits, strict=options.min_values_policy != "BestEffort", thrifty=thrifty)
        self.unplaced: list[Group] = []
        self._classes = classes
        for pods, _ in classes:
            self._register(pods)
        guarding = [
            pod
            for place in inventory.places
            for pod in place.pods
            if pod.spec.affinity is not None and pod.spec.affinity.pod_anti_affinity is not None
        ]
        self.topology.count_running(self.ground, inventory, guarding)
        self._bundler = Bundler(judge, self.topology.domains)

    def expand(self, pods: Iterable[str]) -> list[str]:
        """The keys of pods, those of bundles taken apart."""
        return [key for pod in pods for key in self._bundler.expand(pod)]

    @property
    def pods(self) -> int:
        """How many pods the run is about."""
        return sum(len(s.pods) for _, sizes in self._classes for s in sizes)

    def _waiting(self) -> list[Group]:
        return [
            self._group(pods, self._possible(pods), [(self._vector(s), list(s.pods)) for s in sizes])
            for pods, sizes in self._classes
        ]

    def run_one_by_one(self, *, cautious: bool) -> None:
        """Places every pod by itself, the largest first, or leaves it in ``unplaced``."""
        waiting = self._waiting()
        self._activate(waiting)
        plan = FirstFit(
            self._judge,
            self.topology,
            self.ground,
            self.packer,
            self._group,
            cautious=cautious,
            favourite=self.favourite,
        )
        self.unplaced = plan.run(waiting)
        self.given_up = plan.given_up
        self._finish()

    def run(self) -> None:
        """Places every pod, or leaves it in ``unplaced``."""
        waiting = self._waiting()
        while waiting:
            left = self._round(waiting)
            waiting = []
            for group in left:
                wishes = give_up_one(group.pods, group.wishes, group.tried)
                if wishes is None:
                    self.unplaced.append(group)
                else:
                    self.given_up += group.count
                    waiting.append(self._group(group.pods, wishes, group.sizes))
        self._finish()

    def improve(self, budget: int) -> None:
        """Second thoughts on what is bought."""
        loosen(self.packer)
        Improver(self.packer, budget).run()
        if self.unplaced:
            settle(self.packer, strict=self.packer.strict)
            self.unplaced = self._round(self.unplaced)  # what became smaller may have left limits room for them
        self._finish()

    def _finish(self) -> None:
        """Makes each machine the cheapest that will do; then what can't be had after all is given back."""
        settle(self.packer, strict=self.packer.strict)
        for bin_ in keep_limits(self.packer):
            for item, pods in bin_.content:
                self._evict(item, pods)
            self._drop(bin_)
        if self.unplaced:
            self._even_out()
            self._first_by_name()

    def choice_of_domains(self) -> tuple[str, ...]:
        """The domains, a few, that machines may be bought in under rules about zones or other labels."""
        domains = self.topology.domains
        found: list[str] = []
        if self.packer.bins:
            for key in sorted({domains.keys[t] for t in domains.active}, key=lambda k: (k != ZONE, k)):
                rows = np.ones(len(self._judge.market.pool_of), np.bool_)
                offerings = np.ones(len(self._judge.market.offerings), np.bool_)
                found += self.topology.values(key, rows, offerings, np.zeros(len(self.ground), np.bool_))
        return tuple(found[:_DOMAINS])

    def leaves_some_out(self) -> bool:
        """Whether a pod has no place that would have one in a cluster of its own."""
        market = self._judge.market
        for group in self.unplaced:
            for _, asked in group.alternatives:
                rows, _, _, _ = self._judge.judge(asked, group.pods.tolerations, soft=group.wishes.soft)
                if any((market.free[rows] >= requests).all(1).any() for requests, _ in group.sizes):
                    return True
        return False

    def is_entangled(self) -> bool:
        """Whether machines are bought where counting may serve badly: beside places, near limits, in picky pools."""
        market = self._judge.market
        weights = {market.pools[market.pool_of[b.row]].weight for b in self.packer.bins}
        if len(weights) > 1 or (self.packer.bins and len(self.ground)):
            return True
        if self.packer.strict and any(market.pools[market.pool_of[b.row]].min_values for b in self.packer.bins):
            return True
        return any(self.limits.limited_row(b.row) for b in self.packer.bins) or self.meets_two_rules()

    def meets_two_rules(self) -> bool:
        """Whether pods are bought for that are spread over two labels at once."""
        keys = self.topology.domains.keys
        return any(
            len({keys[t] for t in item.owner.rules.even}) > 1
            for b in self.packer.bins
            for item, _ in b.content
            if isinstance(item.owner, Group)
        )

    # --- what can't be had after all ---

    def _evict(self, item: Item, pods: list[str]) -> None:
        """Gives pods of a machine back, and takes them out of the counts."""
        group = item.owner
        if not isinstance(group, Group) or not pods:
            return
        self.topology.domains.take(group.rules, item.where, -len(pods))
        group.sizes.append((item.requests, list(pods)))
        owners = self._unbind([group]) or [group]
        known = {id(g) for g in self.unplaced}
        self.unplaced += [g for g in {id(g): g for g in owners}.values() if id(g) not in known]

    def _drop(self, bin_: Bin) -> None:
        self.packer.bins.remove(bin_)
        if bin_.reserved is not None:
            self.limits.release(int(self._judge.market.pool_of[bin_.row]), bin_.reserved)
        else:
            self.limits.give(bin_.row)

    def _even_out(self) -> None:
        """Takes pods out of domains that are too full since others found no place elsewhere."""
        again = True
        while again:
            again = False
            for bin_ in list(self.packer.bins):
                for at, (item, pods) in enumerate(bin_.content):
                    n = min(len(pods), self._too_many(item))
                    if n:
                        bin_.content[at] = (item, pods[:-n])
                        bin_.used = bin_.used - item.requests * n
                        self._evict(item, pods[-n:])
                        again = True
                bin_.content = [(item, pods) for item, pods in bin_.content if pods]
                if not bin_.content:
                    self._drop(bin_)
            for place, content in self.ground.content.items():
                for at, (item, pods) in enumerate(content):
                    n = min(len(pods), self._too_many(item))
                    if n:
                        self._evict(item, self.ground.evict(place, at, n))
                        again = True

    def _too_many(self, item: Item) -> int:
        """By how many pods of the item its domain is too full."""
        group, domains = item.owner, self.topology.domains
        if not isinstance(group, Group):
            return 0
        found = 0
        for term, even in group.rules.even.items():
            over = -domains.left(term, even, item.where[domains.keys[term]])
            if over > 0:
                weight = group.rules.match.get(term, 0)
                found = max(found, -(-over // weight) if weight else _ALL)
        return found

    def _first_by_name(self) -> None:
        """Of pods that are alike in all that counts, lets the first by name have the places there are.

        Or who of them is left out would hang on how others happened to be packed.
        """
        known: dict[int, object] = {}
        left: dict[object, list[list[str]]] = {}
        for group in self.unplaced:
            for requests, pods in group.sizes:
                left.setdefault((self._like(group.pods, known), requests.tobytes()), []).append(pods)
        placed: dict[object, list[list[str]]] = {}
        for item, pods in self._content():
            if isinstance(item.owner, Group) and not any(p in self._bundler.members for p in pods):
                key: object = (self._like(item.owner.pods, known), item.requests.tobytes())
                if key in left:
                    placed.setdefault(key, []).append(pods)
        for key, many in placed.items():
            lists = [*many, *left[key]]
            names = iter(sorted(pod for pods in lists for pod in pods))
            for pods in lists:
                pods[:] = [next(names) for _ in pods]

    def _content(self) -> Iterator[tuple[Item, list[str]]]:
        """What is on all machines and places; but for volumes on places that count them."""
        for bin_ in self.packer.bins:
            yield from bin_.content
        for place, content in self.ground.content.items():
            for item, pods in content:
                if not (item.kind.mounted and self.ground.inventory.places[place].volume_limits):
                    yield item, pods

    def _like(self, pods: PodClass, known: dict[int, object]) -> object:
        """What is equal for classes whose pods may stand in for one another, whatever their labels are."""
        found = known.get(id(pods))
        if found is None:
            group = self._group(pods, all_wishes(pods), [])
            found = known[id(pods)] = (
                tuple(signature(a) for a in pods.alternatives),
                tuple(signature(a) for a in pods.preferred_nodes),
                tolerations_key(pods.tolerations),
                tuple(sorted(group.rules.match.items())),
                tuple(sorted(group.rules.even.items(), key=lambda e: e[0])),
                (group.rules.apart, group.rules.guards, group.rules.together),
                (group.host.key, group.near),
                pods.ports,
            )
        return found

    def left_out(self) -> set[str]:
        """The pods without a place."""
        return {key for g in self.unplaced for _, pods in g.sizes for key in self.expand(pods)}

    def rank(self) -> tuple[int, int, float]:
        """Less is better: pods without a place, preferences given up, price."""
        price = sum(b.price(self._judge.market) for b in self.packer.bins)
        return len(self.left_out()), self.given_up, round(price, 9)

    def _activate(self, groups: Iterable[Group]) -> None:
        """Makes the rules of the groups count."""
        domains = self.topology.domains
        for group in groups:
            domains.asked |= {*group.rules.even, *group.rules.apart, *group.rules.together}
            domains.active |= domains.asked
            for term, even in group.rules.even.items():
                known = domains.wanted.get(term)
                if known is None or even.max_skew < known.max_skew:
                    domains.wanted[term] = even

    def _round(self, groups: list[Group]) -> list[Group]:
        self._activate(groups)
        asked = list(groups)
        groups = self._bundler.bind(groups, self.present())
        items = self._deal(groups)
        value(self._judge.market, items)
        for weight in sorted({p.weight for p in self._judge.market.pools}, reverse=True):
            self.packer.pack(items, weight)
        for item in items:
            self._hand_back(item)
        self._unbind(groups)
        return [g for g in asked if g.sizes]

    def present(self) -> dict[int, bool]:
        """Which rules about hosts have pods that they speak of on hosts already."""
        found = {t: bool(n.any()) for t, n in self.ground.hosts.present.items()}
        for bin_ in self.packer.bins:
            for item, _ in bin_.content:
                found.update(dict.fromkeys(item.kind.host.match, True))
        return found

    def _deal(self, groups: Sequence[Group]) -> list[Item]:
        """Deals all groups out; those whose affinity is about pods without a place wait for these."""
        domains = self.topology.domains
        dealer = Dealer(self._judge, self.topology, self.ground, domains, self.favourite)
        queue = sorted(groups, key=self._urgency)
        while queue:
            later: list[Group] = []
            for group in queue:
                if domains.waits(group.rules):
                    later.append(group)
                else:
                    dealer.deal(group)
            if len(later) == len(queue):
                break
            queue = later
        return dealer.items

    def _unbind(self, groups: Iterable[Group]) -> list[Group]:
        """Gives the members of bundles that found no place back to their groups, which are told."""
        owners: list[Group] = []
        for group in groups:
            for _, pods in group.sizes:
                for key in [p for p in pods if p in self._bundler.members]:
                    for owner, requests, pod in self._bundler.take_apart(key):
                        owner.sizes.append((requests, [pod]))
                        owners.append(owner)
                    pods.remove(key)
            group.sizes = [s for s in group.sizes if s[1]]
        return owners

    def _hand_back(self, item: Item) -> None:
        """Gives pods that found no machine back to their group, and takes them out of the counts."""
        group = item.owner
        if item.pods and isinstance(group, Group):
            self.topology.domains.take(group.rules, item.where, -len(item.pods))
            group.sizes.append((item.requests, item.pods))

    def _urgency(self, group: Group) -> tuple[bool, bool, bool, list[int], str]:
        kind = Dealer(self._judge, self.topology, self.ground, self.topology.domains, self.favourite).kind(group, ())
        biggest = group.sizes[0][0]
        settled = not (group.rules.even or group.rules.apart or group.rules.together)
        follows = any(term not in group.rules.match for term in group.rules.even)  # it is even with others: these first
        return (kind is None or kind.buyable, follows, not settled, [-int(x) for x in biggest], group.sizes[0][1][0])

    def _vector(self, sized: Sized) -> Ints:
        found = np.zeros(len(self._place), np.int64)
        for name, amount in sized.requests.items():
            found[self._place[name]] = amount
        return found

    # --- what counts ---

    def _register(self, pods: PodClass) -> None:
        """Numbers every rule that the class may ever hold."""
        for term in (*pods.apart, *pods.preferred_apart, *pods.together, *pods.preferred_together):
            _ = self.topology.host(term) if term.key == HOSTNAME else self.topology.area(term)
        for spread in (*pods.spread, *pods.preferred_spread):
            if spread.term.key == HOSTNAME:
                self.topology.host(spread.term)
            else:
                self.topology.spread(spread, pods.alternatives, pods.tolerations)

    def _possible(self, pods: PodClass) -> Wishes:
        """The wishes that could be fulfilled at all; what no node could ever give is given up at once."""
        if self._options.preference_policy == "Ignore":
            return no_wishes(pods)
        wishes = all_wishes(pods)
        while wishes.node < len(pods.preferred_nodes) and not self._somewhere(pods, wishes):
            wishes = Wishes(wishes.alternatives, wishes.node + 1, wishes.together, wishes.apart, wishes.spread)
        together = tuple(t for t in wishes.together if self._is_about_someone(t))
        spread = tuple(
            s
            for s in wishes.spread
            if s.term.key == HOSTNAME or self.topology.eligible(s, pods.alternatives, pods.tolerations)
        )
        wishes = Wishes(wishes.alternatives, wishes.node, together, wishes.apart, spread)
        if not self._somewhere(pods, wishes):
            wishes = Wishes(wishes.alternatives, wishes.node, together, wishes.apart, spread, soft=True)
        return wishes

    def _somewhere(self, pods: PodClass, wishes: Wishes) -> bool:
        for _, asked in requirements(pods, wishes):
            rows, _, _, places = self._judge.judge(asked, pods.tolerations, soft=wishes.soft)
            if rows.any() or places.any():
                return True
        return False

    def _is_about_someone(self, term: Term) -> bool:
        if any(term.matches(c.namespace, c.labels) for c, _ in self._classes):
            return True
        return any(
            term.matches(p.metadata.namespace or "default", p.metadata.labels)
            for place in self._judge.inventory.places
            for p in place.pods
        )

    def _group(self, pods: PodClass, wishes: Wishes, sizes: list[tuple[Ints, list[str]]]) -> Group:
        apart = (*pods.apart, *wishes.apart)
        together = (*pods.together, *wishes.together)
        spread = (*pods.spread, *wishes.spread)
        even: dict[int, Even] = {}
        for rule in spread:
            if rule.term.key != HOSTNAME:
                number = self.topology.spread(rule, pods.alternatives, pods.tolerations)
                even[number] = self.topology.even(rule, pods.alternatives, pods.tolerations).strictest(even.get(number))
        rules = DomainRules(
            match=self.topology.areas.matching(pods.namespace, pods.labels),
            even=even,
            apart=frozenset(self.topology.area(t) for t in apart if t.key != HOSTNAME),
            guards=frozenset(self.topology.area(t) for t in pods.apart if t.key != HOSTNAME),
            together=frozenset(self.topology.area(t) for t in together if t.key != HOSTNAME),
        )
        host = self.topology.host_rules(
            pods, [t for t in apart if t.key == HOSTNAME], [s for s in spread if s.term.key == HOSTNAME]
        )
        near = tuple(sorted(self.topology.host(t) for t in together if t.key == HOSTNAME))
        ordered = sorted(sizes, key=lambda s: ([-int(x) for x in s[0]], s[1][0]))
        return Group(pods, wishes, requirements(pods, wishes), host, rules, near, ordered)
