"""The rounds of a run: deal, buy, and give up a preference where nothing was found.

Holds what all rounds share: the ground, the counts of topology, the machines bought so far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.api.labels import HOSTNAME, ZONE
from shared.scheduling.rules.requirements import signature
from shared.scheduling.solver.domain_assignment import Dealer, PendingGroup
from shared.scheduling.solver.existing_capacity import ExistingCapacity
from shared.scheduling.solver.first_fit import FirstFit
from shared.scheduling.solver.fit import Item, value
from shared.scheduling.solver.host_affinity import Bundler
from shared.scheduling.solver.local_search import Improver
from shared.scheduling.solver.packing import Packer
from shared.scheduling.solver.settling import keep_limits, loosen, settle
from shared.scheduling.state.node_pool_limits import NodePoolLimits
from shared.scheduling.topology.domain_counts import DomainRules, TopologySpread
from shared.scheduling.topology.feasibility import tolerations_key
from shared.scheduling.topology.preferences import Preferences, all_preferences, no_preferences, relax, requirements
from shared.scheduling.topology.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.decision import SchedulingPolicies
    from shared.scheduling.rules.pod_affinity import Namespaces, TopologyTerm
    from shared.scheduling.solver.packing import Bin
    from shared.scheduling.topology.feasibility import FeasibilityChecker
    from shared.scheduling.topology.pod_groups import PodGroup, SizedPods

    Ints = NDArray[np.int64]


_DOMAINS = 5
"""So many zones, or values of other labels, are tried as the preferred domain."""
_ALL = 1 << 30


class Planner:
    """Plans all pods of a run."""

    def __init__(
        self,
        checker: FeasibilityChecker,
        spaces: Namespaces,
        classes: Sequence[tuple[PodGroup, list[SizedPods]]],
        policies: SchedulingPolicies,
        preferred_domain: str = "",
        *,
        cheapest_per_pod: bool = False,
    ) -> None:
        self._checker = checker
        self.preferred_domain = preferred_domain
        self.relaxed = 0
        self._policies = policies
        launch_options, state_nodes = checker.launch_options, checker.state_nodes
        self._place = {r: i for i, r in enumerate(launch_options.resources)}
        self.topology = Topology(checker, spaces, [c for c, _ in classes])
        self.existing_capacity = ExistingCapacity(state_nodes, launch_options.resources)
        self.limits = NodePoolLimits(launch_options, state_nodes)
        self.packer = Packer(
            launch_options,
            self.limits,
            strict=policies.min_values_policy != "BestEffort",
            cheapest_per_pod=cheapest_per_pod,
        )
        self.unplaced: list[PendingGroup] = []
        self._classes = classes
        for pods, _ in classes:
            self._register(pods)
        guarding = [
            pod
            for place in state_nodes.nodes
            for pod in place.pods
            if pod.spec.affinity is not None and pod.spec.affinity.pod_anti_affinity is not None
        ]
        self.topology.count_scheduled_pods(self.existing_capacity.host_counts, state_nodes, guarding)
        self._bundler = Bundler(checker, self.topology.domain_counts)

    def expand(self, pods: Iterable[str]) -> list[str]:
        """The keys of pods, those of bundles taken apart."""
        return [key for pod in pods for key in self._bundler.expand(pod)]

    @property
    def pods(self) -> int:
        """How many pods the run is about."""
        return sum(len(s.pods) for _, sizes in self._classes for s in sizes)

    def _waiting(self) -> list[PendingGroup]:
        return [
            self._group(pods, self._possible(pods), [(self._vector(s), list(s.pods)) for s in sizes])
            for pods, sizes in self._classes
        ]

    def run_one_by_one(self, *, cautious: bool) -> None:
        """Places every pod by itself, the largest first, or leaves it in ``unplaced``."""
        waiting = self._waiting()
        self._activate(waiting)
        plan = FirstFit(
            self._checker,
            self.topology,
            self.existing_capacity,
            self.packer,
            self._group,
            cautious=cautious,
            preferred_domain=self.preferred_domain,
        )
        self.unplaced = plan.run(waiting)
        self.relaxed = plan.relaxed
        self._finish()

    def run(self) -> None:
        """Places every pod, or leaves it in ``unplaced``."""
        waiting = self._waiting()
        while waiting:
            left = self._round(waiting)
            waiting = []
            for group in left:
                preferences = relax(group.pod_group, group.preferences, group.tried)
                if preferences is None:
                    self.unplaced.append(group)
                else:
                    self.relaxed += group.count
                    waiting.append(self._group(group.pod_group, preferences, group.sizes))
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
        domains = self.topology.domain_counts
        found: list[str] = []
        if self.packer.bins:
            for key in sorted({domains.keys[t] for t in domains.active}, key=lambda k: (k != ZONE, k)):
                options = np.ones(len(self._checker.launch_options.template_of), np.bool_)
                offerings = np.ones(len(self._checker.launch_options.offerings), np.bool_)
                found += self.topology.label_values(
                    key, options, offerings, np.zeros(len(self.existing_capacity), np.bool_)
                )
        return tuple(found[:_DOMAINS])

    def leaves_some_out(self) -> bool:
        """Whether a pod has no place that would have one in a cluster of its own."""
        launch_options = self._checker.launch_options
        for group in self.unplaced:
            for _, asked in group.alternatives:
                options, _, _, _ = self._checker.check(
                    asked,
                    group.pod_group.tolerations,
                    tolerate_prefer_no_schedule=group.preferences.tolerate_prefer_no_schedule,
                )
                if any((launch_options.free[options] >= requests).all(1).any() for requests, _ in group.sizes):
                    return True
        return False

    def is_entangled(self) -> bool:
        """Whether machines are bought where counting may serve badly: beside places, near limits, in picky pools."""
        launch_options = self._checker.launch_options
        weights = {launch_options.templates[launch_options.template_of[b.option]].weight for b in self.packer.bins}
        if len(weights) > 1 or (self.packer.bins and len(self.existing_capacity)):
            return True
        if self.packer.strict and any(
            launch_options.templates[launch_options.template_of[b.option]].min_values for b in self.packer.bins
        ):
            return True
        return any(self.limits.is_near_for(b.option) for b in self.packer.bins) or self.meets_two_rules()

    def meets_two_rules(self) -> bool:
        """Whether pods are bought for that are spread over two labels at once."""
        keys = self.topology.domain_counts.keys
        return any(
            len({keys[t] for t in item.owner.rules.topology_spread}) > 1
            for b in self.packer.bins
            for item, _ in b.content
            if isinstance(item.owner, PendingGroup)
        )

    # --- what can't be had after all ---

    def _evict(self, item: Item, pods: list[str]) -> None:
        """Gives pods of a machine back, and takes them out of the counts."""
        group = item.owner
        if not isinstance(group, PendingGroup) or not pods:
            return
        self.topology.domain_counts.take(group.rules, item.where, -len(pods))
        group.sizes.append((item.requests, list(pods)))
        owners = self._unbind([group]) or [group]
        known = {id(g) for g in self.unplaced}
        self.unplaced += [g for g in {id(g): g for g in owners}.values() if id(g) not in known]

    def _drop(self, bin_: Bin) -> None:
        self.packer.bins.remove(bin_)
        if bin_.reserved is not None:
            self.limits.release(int(self._checker.launch_options.template_of[bin_.option]), bin_.reserved)
        else:
            self.limits.remove(bin_.option)

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
            for place, content in self.existing_capacity.content.items():
                for at, (item, pods) in enumerate(content):
                    n = min(len(pods), self._too_many(item))
                    if n:
                        self._evict(item, self.existing_capacity.evict(place, at, n))
                        again = True

    def _too_many(self, item: Item) -> int:
        """By how many pods of the item its domain is too full."""
        group, domains = item.owner, self.topology.domain_counts
        if not isinstance(group, PendingGroup):
            return 0
        found = 0
        for term, topology_spread in group.rules.topology_spread.items():
            over = -domains.skew_left(term, topology_spread, item.where[domains.keys[term]])
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
                left.setdefault((self._like(group.pod_group, known), requests.tobytes()), []).append(pods)
        placed: dict[object, list[list[str]]] = {}
        for item, pods in self._content():
            if isinstance(item.owner, PendingGroup) and not any(p in self._bundler.members for p in pods):
                key: object = (self._like(item.owner.pod_group, known), item.requests.tobytes())
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
        for place, content in self.existing_capacity.content.items():
            for item, pods in content:
                if not (
                    item.feasibility.mounted_volumes and self.existing_capacity.state_nodes.nodes[place].volume_limits
                ):
                    yield item, pods

    def _like(self, pods: PodGroup, known: dict[int, object]) -> object:
        """What is equal for classes whose pods may stand in for one another, whatever their labels are."""
        found = known.get(id(pods))
        if found is None:
            group = self._group(pods, all_preferences(pods), [])
            found = known[id(pods)] = (
                tuple(signature(a) for a in pods.alternatives),
                tuple(signature(a) for a in pods.preferred_node_affinity),
                tolerations_key(pods.tolerations),
                tuple(sorted(group.rules.match.items())),
                tuple(sorted(group.rules.topology_spread.items(), key=lambda e: e[0])),
                (group.rules.anti_affinity, group.rules.required_anti_affinity, group.rules.affinity),
                (group.host.key, group.host_affinity),
                pods.ports,
            )
        return found

    def left_out(self) -> set[str]:
        """The pods without a place."""
        return {key for g in self.unplaced for _, pods in g.sizes for key in self.expand(pods)}

    def rank(self) -> tuple[int, int, float]:
        """Less is better: pods without a place, preferences given up, price."""
        price = sum(b.price(self._checker.launch_options) for b in self.packer.bins)
        return len(self.left_out()), self.relaxed, round(price, 9)

    def _activate(self, groups: Iterable[PendingGroup]) -> None:
        """Makes the rules of the groups count."""
        domains = self.topology.domain_counts
        for group in groups:
            domains.pending_terms |= {*group.rules.topology_spread, *group.rules.anti_affinity, *group.rules.affinity}
            domains.active |= domains.pending_terms
            for term, topology_spread in group.rules.topology_spread.items():
                known = domains.requested_spread.get(term)
                if known is None or topology_spread.max_skew < known.max_skew:
                    domains.requested_spread[term] = topology_spread

    def _round(self, groups: list[PendingGroup]) -> list[PendingGroup]:
        self._activate(groups)
        asked = list(groups)
        groups = self._bundler.bind(groups, self.present())
        items = self._deal(groups)
        value(self._checker.launch_options, items)
        for weight in sorted({p.weight for p in self._checker.launch_options.templates}, reverse=True):
            self.packer.pack(items, weight)
        for item in items:
            self._hand_back(item)
        self._unbind(groups)
        return [g for g in asked if g.sizes]

    def present(self) -> dict[int, bool]:
        """Which rules about hosts have pods that they speak of on hosts already."""
        found = {t: bool(n.any()) for t, n in self.existing_capacity.host_counts.present.items()}
        for bin_ in self.packer.bins:
            for item, _ in bin_.content:
                found.update(dict.fromkeys(item.feasibility.host.match, True))
        return found

    def _deal(self, groups: Sequence[PendingGroup]) -> list[Item]:
        """Deals all groups out; those whose affinity is about pods without a place wait for these."""
        domains = self.topology.domain_counts
        dealer = Dealer(self._checker, self.topology, self.existing_capacity, domains, self.preferred_domain)
        queue = sorted(groups, key=self._urgency)
        while queue:
            later: list[PendingGroup] = []
            for group in queue:
                if domains.awaits_affinity(group.rules):
                    later.append(group)
                else:
                    dealer.deal(group)
            if len(later) == len(queue):
                break
            queue = later
        return dealer.items

    def _unbind(self, groups: Iterable[PendingGroup]) -> list[PendingGroup]:
        """Gives the members of bundles that found no place back to their groups, which are told."""
        owners: list[PendingGroup] = []
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
        if item.pods and isinstance(group, PendingGroup):
            self.topology.domain_counts.take(group.rules, item.where, -len(item.pods))
            group.sizes.append((item.requests, item.pods))

    def _urgency(self, group: PendingGroup) -> tuple[bool, bool, bool, list[int], str]:
        feasibility = Dealer(
            self._checker, self.topology, self.existing_capacity, self.topology.domain_counts, self.preferred_domain
        ).feasibility(group, ())
        biggest = group.sizes[0][0]
        settled = not (group.rules.topology_spread or group.rules.anti_affinity or group.rules.affinity)
        follows = any(
            term not in group.rules.match for term in group.rules.topology_spread
        )  # it is even with others: these first
        return (
            feasibility is None or feasibility.launchable,
            follows,
            not settled,
            [-int(x) for x in biggest],
            group.sizes[0][1][0],
        )

    def _vector(self, sized: SizedPods) -> Ints:
        found = np.zeros(len(self._place), np.int64)
        for name, amount in sized.requests.items():
            found[self._place[name]] = amount
        return found

    # --- what counts ---

    def _register(self, pods: PodGroup) -> None:
        """Numbers every rule that the class may ever hold."""
        for term in (*pods.anti_affinity, *pods.preferred_anti_affinity, *pods.affinity, *pods.preferred_affinity):
            _ = self.topology.host_term(term) if term.topology_key == HOSTNAME else self.topology.domain_term(term)
        for spread in (*pods.spread_constraints, *pods.preferred_spread_constraints):
            if spread.term.topology_key == HOSTNAME:
                self.topology.host_term(spread.term)
            else:
                self.topology.spread_term(spread, pods.alternatives, pods.tolerations)

    def _possible(self, pods: PodGroup) -> Preferences:
        """The wishes that could be fulfilled at all; what no node could ever give is given up at once."""
        if self._policies.preference_policy == "Ignore":
            return no_preferences(pods)
        preferences = all_preferences(pods)
        while preferences.node_affinity < len(pods.preferred_node_affinity) and not self._somewhere(pods, preferences):
            preferences = Preferences(
                preferences.alternatives,
                preferences.node_affinity + 1,
                preferences.affinity,
                preferences.anti_affinity,
                preferences.spread_constraints,
            )
        affinity = tuple(t for t in preferences.affinity if self._is_about_someone(t))
        spread = tuple(
            s
            for s in preferences.spread_constraints
            if s.term.topology_key == HOSTNAME or self.topology.eligible_domains(s, pods.alternatives, pods.tolerations)
        )
        preferences = Preferences(
            preferences.alternatives, preferences.node_affinity, affinity, preferences.anti_affinity, spread
        )
        if not self._somewhere(pods, preferences):
            preferences = Preferences(
                preferences.alternatives,
                preferences.node_affinity,
                affinity,
                preferences.anti_affinity,
                spread,
                tolerate_prefer_no_schedule=True,
            )
        return preferences

    def _somewhere(self, pods: PodGroup, preferences: Preferences) -> bool:
        for _, asked in requirements(pods, preferences):
            options, _, _, places = self._checker.check(
                asked, pods.tolerations, tolerate_prefer_no_schedule=preferences.tolerate_prefer_no_schedule
            )
            if options.any() or places.any():
                return True
        return False

    def _is_about_someone(self, term: TopologyTerm) -> bool:
        if any(term.matches(c.namespace, c.labels) for c, _ in self._classes):
            return True
        return any(
            term.matches(p.metadata.namespace or "default", p.metadata.labels)
            for place in self._checker.state_nodes.nodes
            for p in place.pods
        )

    def _group(self, pods: PodGroup, preferences: Preferences, sizes: list[tuple[Ints, list[str]]]) -> PendingGroup:
        anti_affinity = (*pods.anti_affinity, *preferences.anti_affinity)
        affinity = (*pods.affinity, *preferences.affinity)
        spread = (*pods.spread_constraints, *preferences.spread_constraints)
        topology_spread: dict[int, TopologySpread] = {}
        for rule in spread:
            if rule.term.topology_key != HOSTNAME:
                number = self.topology.spread_term(rule, pods.alternatives, pods.tolerations)
                topology_spread[number] = self.topology.topology_spread(
                    rule, pods.alternatives, pods.tolerations
                ).strictest(topology_spread.get(number))
        rules = DomainRules(
            match=self.topology.domain_terms.matching(pods.namespace, pods.labels),
            topology_spread=topology_spread,
            anti_affinity=frozenset(self.topology.domain_term(t) for t in anti_affinity if t.topology_key != HOSTNAME),
            required_anti_affinity=frozenset(
                self.topology.domain_term(t) for t in pods.anti_affinity if t.topology_key != HOSTNAME
            ),
            affinity=frozenset(self.topology.domain_term(t) for t in affinity if t.topology_key != HOSTNAME),
        )
        host = self.topology.host_rules(
            pods,
            [t for t in anti_affinity if t.topology_key == HOSTNAME],
            [s for s in spread if s.term.topology_key == HOSTNAME],
        )
        near = tuple(sorted(self.topology.host_term(t) for t in affinity if t.topology_key == HOSTNAME))
        ordered = sorted(sizes, key=lambda s: ([-int(x) for x in s[0]], s[1][0]))
        return PendingGroup(pods, preferences, requirements(pods, preferences), host, rules, near, ordered)
