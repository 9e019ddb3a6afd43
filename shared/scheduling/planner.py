"""The rounds of a run: deal, buy, and give up a preference where nothing was found.

Holds what all rounds share: the ground, the counts of topology, the machines bought so far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.api.labels import HOSTNAME, ZONE
from shared.scheduling.bundles import Bundler
from shared.scheduling.claims import settle
from shared.scheduling.dealing import Dealer, Group
from shared.scheduling.domains import DomainRules, Even
from shared.scheduling.filling import value
from shared.scheduling.ground import Ground
from shared.scheduling.improving import Improver
from shared.scheduling.limits import Limits
from shared.scheduling.packing import Packer
from shared.scheduling.relaxation import Wishes, all_wishes, give_up_one, no_wishes, requirements
from shared.scheduling.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.classes import PodClass, Sized
    from shared.scheduling.decision import Options
    from shared.scheduling.filling import Item
    from shared.scheduling.kinds import Judge
    from shared.scheduling.terms import Namespaces, Term

    Ints = NDArray[np.int64]


_FEW = 300
_ZONES = 4
_BUDGET = 1500
"""How many fillings of an item into all rows second thoughts may take: some tens of milliseconds."""
_BUDGET_OF_MANY = 80


def best_plan(
    judge: Judge, spaces: Namespaces, classes: Sequence[tuple[PodClass, list[Sized]]], options: Options
) -> Planner:
    """The plan of a run: where zones may be chosen and pods are few, the best of a plan for each as the favourite."""
    best = Planner(judge, spaces, classes, options)
    best.run()
    domains = best.topology.domains
    pods = sum(len(s.pods) for _, sizes in classes for s in sizes)
    if pods > _FEW or not best.packer.bins or not any(domains.keys[t] == ZONE for t in domains.active):
        return best
    for zone in judge.market.columns[ZONE].values[:_ZONES]:
        other = Planner(judge, spaces, classes, options, favourite=zone)
        other.run()
        if other.rank() < best.rank():
            best = other
    return best


class Planner:
    """Plans all pods of a run."""

    def __init__(
        self,
        judge: Judge,
        spaces: Namespaces,
        classes: Sequence[tuple[PodClass, list[Sized]]],
        options: Options,
        favourite: str = "",
    ) -> None:
        self._judge = judge
        self._favourite = favourite
        self.given_up = 0
        self._options = options
        market, inventory = judge.market, judge.inventory
        self._place = {r: i for i, r in enumerate(market.resources)}
        self.topology = Topology(judge, spaces, [c for c, _ in classes])
        self.ground = Ground(inventory, market.resources)
        self.limits = Limits(market, inventory)
        self.packer = Packer(market, self.limits, strict=options.min_values_policy != "BestEffort")
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
        self._bundler = Bundler(judge)

    def expand(self, pods: Iterable[str]) -> list[str]:
        """The keys of pods, those of bundles taken apart."""
        return [key for pod in pods for key in self._bundler.expand(pod)]

    def run(self) -> None:
        """Places every pod, or leaves it in ``unplaced``."""
        waiting = [
            self._group(pods, self._possible(pods), [(self._vector(s), list(s.pods)) for s in sizes])
            for pods, sizes in self._classes
        ]
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
        pods = sum(len(s.pods) for _, sizes in self._classes for s in sizes)
        Improver(self.packer, _BUDGET if pods <= _FEW else _BUDGET_OF_MANY).run()
        settle(self.packer, strict=self.packer.strict)

    def rank(self) -> tuple[int, int, float]:
        """Less is better: pods without a place, preferences given up, price."""
        price = sum(b.price(self._judge.market) for b in self.packer.bins)
        return sum(len(self.expand(pods)) for g in self.unplaced for _, pods in g.sizes), self.given_up, round(price, 9)

    def _round(self, groups: list[Group]) -> list[Group]:
        domains = self.topology.domains
        for group in groups:
            domains.active |= {*group.rules.even, *group.rules.apart, *group.rules.together}
            for term, even in group.rules.even.items():
                known = domains.wanted.get(term)
                if known is None or even.max_skew < known.max_skew:
                    domains.wanted[term] = even
        asked = list(groups)
        groups = self._bundler.bind(groups, self._present())
        items = self._deal(groups)
        value(self._judge.market, items)
        for weight in sorted({p.weight for p in self._judge.market.pools}, reverse=True):
            self.packer.pack(items, weight)
        for item in items:
            self._hand_back(item)
        self._unbind(groups)
        return [g for g in asked if g.sizes]

    def _present(self) -> dict[int, bool]:
        """Which rules about hosts have pods that they speak of on hosts already."""
        found = {t: bool(n.any()) for t, n in self.ground.hosts.present.items()}
        for bin_ in self.packer.bins:
            for item, _ in bin_.content:
                found.update(dict.fromkeys(item.kind.host.match, True))
        return found

    def _deal(self, groups: Sequence[Group]) -> list[Item]:
        """Deals all groups out; those whose affinity is about pods without a place wait for these."""
        domains = self.topology.domains
        dealer = Dealer(self._judge, self.topology, self.ground, domains, self._favourite)
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

    def _unbind(self, groups: Iterable[Group]) -> None:
        """Gives the members of bundles that found no place back to their groups."""
        for group in groups:
            for _, pods in group.sizes:
                for key in [p for p in pods if p in self._bundler.members]:
                    for owner, requests, pod in self._bundler.members.pop(key):
                        owner.sizes.append((requests, [pod]))
                    pods.remove(key)
            group.sizes = [s for s in group.sizes if s[1]]

    def _hand_back(self, item: Item) -> None:
        """Gives pods that found no machine back to their group, and takes them out of the counts."""
        group = item.owner
        if item.pods and isinstance(group, Group):
            self.topology.domains.take(group.rules, item.where, -len(item.pods))
            group.sizes.append((item.requests, item.pods))

    def _urgency(self, group: Group) -> tuple[bool, bool, list[int], str]:
        kind = Dealer(self._judge, self.topology, self.ground, self.topology.domains, self._favourite).kind(group, ())
        biggest = group.sizes[0][0]
        settled = not (group.rules.even or group.rules.apart or group.rules.together)
        return (kind is None or kind.buyable, not settled, [-int(x) for x in biggest], group.sizes[0][1][0])

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
                self.topology.spread(spread, pods.alternatives[0], pods.tolerations)

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
            if s.term.key == HOSTNAME or self.topology.eligible(s, pods.alternatives[0], pods.tolerations)
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
        first, borne = pods.alternatives[0], pods.tolerations
        even: dict[int, Even] = {}
        for rule in spread:
            if rule.term.key != HOSTNAME:
                even[self.topology.spread(rule, first, borne)] = self.topology.even(rule, first, borne)
        rules = DomainRules(
            match=self.topology.areas.matching(pods.namespace, pods.labels),
            even=even,
            apart=frozenset(self.topology.area(t) for t in apart if t.key != HOSTNAME),
            together=frozenset(self.topology.area(t) for t in together if t.key != HOSTNAME),
        )
        host = self.topology.host_rules(
            pods, [t for t in apart if t.key == HOSTNAME], [s for s in spread if s.term.key == HOSTNAME]
        )
        near = tuple(sorted(self.topology.host(t) for t in together if t.key == HOSTNAME))
        ordered = sorted(sizes, key=lambda s: ([-int(x) for x in s[0]], s[1][0]))
        return Group(pods, wishes, requirements(pods, wishes), host, rules, near, ordered)
