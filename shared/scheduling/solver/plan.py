"""A plan: where the pods of a run go, and everything that its rounds change on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.scheduling.solver.bins import Bins
from shared.scheduling.solver.existing_capacity import ExistingCapacity
from shared.scheduling.solver.packing import Packer
from shared.scheduling.solver.pending_groups import PendingGroup, PendingGroups
from shared.scheduling.state.cluster_limits import ClusterLimits
from shared.scheduling.state.node_pool_limits import NodePoolLimits
from shared.scheduling.topology.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shared.scheduling.decision import SchedulingPolicies
    from shared.scheduling.rules.pod_affinity import Namespaces
    from shared.scheduling.solver.domain_assignment import DomainChoice
    from shared.scheduling.solver.fit import Item
    from shared.scheduling.solver.host_affinity import HostAffinity
    from shared.scheduling.state.launch_options import LaunchOptions
    from shared.scheduling.state.state_nodes import StateNodes
    from shared.scheduling.topology.feasibility import FeasibilityChecker
    from shared.scheduling.topology.pod_groups import PodGroup, SizedPods


class Plan:
    """Pods on existing nodes (``existing_capacity``), on new nodes (``bins``), and ``unscheduled`` pods.

    ``relaxed`` counts the preferences that were relaxed, once for each pod; ``domain_choices`` are the domains that
    each group could choose from, in the order that it did.

    Args:
        preferred_domain: a zone, or another label value, to assign pods to wherever their rules allow it.
        cheapest_per_pod: how many replicas share a host that may run only a few; see :class:`Packer`.
        one_host_each: preferences for different hosts count to the letter; see solver/preferred_hosts.py.
    """

    def __init__(
        self,
        checker: FeasibilityChecker,
        namespaces: Namespaces,
        groups: Sequence[tuple[PodGroup, list[SizedPods]]],
        policies: SchedulingPolicies,
        preferred_domain: str = "",
        *,
        cheapest_per_pod: bool = False,
        one_host_each: bool = False,
    ) -> None:
        launch_options, state_nodes = checker.launch_options, checker.state_nodes
        self.checker = checker
        self.preferred_domain = preferred_domain
        self.relaxed = 0
        self.unscheduled: list[PendingGroup] = []
        self.domain_choices: list[list[DomainChoice]] = []
        self.topology = Topology(checker, namespaces, [group for group, _ in groups])
        self.existing_capacity = ExistingCapacity(state_nodes, launch_options.resources)
        self.limits = _limits(launch_options, state_nodes)
        self.bins = Bins(launch_options, self.limits, strict=policies.min_values_policy != "BestEffort")
        self.packer = Packer(self.bins, cheapest_per_pod=cheapest_per_pod, shares_hosts=not one_host_each)
        self.pending_groups = PendingGroups(
            checker, self.topology, groups, policies, self.existing_capacity.host_counts, one_host_each=one_host_each
        )
        self._host_affinity: HostAffinity | None = None
        pods_with_anti_affinity = [pod for node in state_nodes.nodes for pod in node.pods_with_anti_affinity]
        self.topology.count_scheduled_pods(self.existing_capacity.host_counts, state_nodes, pods_with_anti_affinity)

    def rank(self) -> tuple[int, int, float]:
        """The less, the better: unscheduled pods, relaxed preferences, price in USD per hour."""
        return len(self.unscheduled_pods()), self.relaxed, round(self.price(), 9)

    def price(self) -> float:
        """The price of the new nodes, USD per hour."""
        return sum(b.price(self.bins.launch_options) for b in self.bins.opened)

    def unscheduled_pods(self) -> set[str]:
        """The keys of unscheduled pods."""
        return {key for group in self.unscheduled for _, pods in group.sizes for key in self.pod_keys(pods)}

    def bind(self, groups: list[PendingGroup]) -> list[PendingGroup]:
        """The groups that have pods, with those bound into bundles that must share a host."""
        if any(group.host_affinity for group in groups):
            if self._host_affinity is None:
                # Imported here: few pods must share a host.
                from shared.scheduling.solver.host_affinity import HostAffinity  # noqa: PLC0415

                self._host_affinity = HostAffinity(self.checker, self.topology.domain_counts, self.existing_capacity)
            return self._host_affinity.bind(groups, self.present_host_terms())
        return [group for group in groups if group.sizes]

    def unbind(self, groups: Iterable[PendingGroup]) -> list[PendingGroup]:
        """Returns the unscheduled bundles of these groups to the groups of their pods, which are returned."""
        if self._host_affinity is not None:
            return self._host_affinity.unbind(groups)
        for group in groups:
            group.sizes = [size for size in group.sizes if size[1]]
        return []

    def pod_keys(self, keys: Iterable[str]) -> list[str]:
        """The keys of pods, bundles replaced by their pods."""
        return list(keys) if self._host_affinity is None else self._host_affinity.pod_keys(keys)

    def is_bundle(self, key: str) -> bool:
        """Whether a key is that of a bundle."""
        return self._host_affinity is not None and self._host_affinity.is_bundle(key)

    def present_host_terms(self) -> dict[int, bool]:
        """The host terms, and whether any host has pods of them."""
        present = {t: bool(n.any()) for t, n in self.existing_capacity.host_counts.present.items()}
        for bin_ in self.bins.opened:
            for item, _ in bin_.content:
                present.update(dict.fromkeys(item.feasibility.host.match, True))
        return present

    def count_rules_of(self, groups: Iterable[PendingGroup]) -> None:
        """Makes the rules of these groups count: other groups' pods need a domain wherever a rule counts them."""
        counts = self.topology.domain_counts
        for group in groups:
            rules = group.rules
            counts.pending_terms |= {*rules.topology_spread, *rules.anti_affinity, *rules.affinity}
            counts.active |= counts.pending_terms
            for term, spread in rules.topology_spread.items():
                strictest = counts.requested_spread.get(term)
                if strictest is None or spread.max_skew < strictest.max_skew:
                    counts.requested_spread[term] = spread

    def unschedule(self, item: Item, pods: Sequence[str]) -> None:
        """Returns pods of a bin or node to ``unscheduled``, and removes them from domain counts."""
        group = item.owner
        if not isinstance(group, PendingGroup) or not pods:
            return
        self.topology.domain_counts.take(group.rules, item.where, -len(pods))
        group.sizes.append((item.requests, list(pods)))
        owners = self.unbind([group]) or [group]
        listed = {id(g) for g in self.unscheduled}
        self.unscheduled += [g for g in {id(g): g for g in owners}.values() if id(g) not in listed]


def _limits(launch_options: LaunchOptions, state_nodes: StateNodes) -> NodePoolLimits:
    """The limits of the NodePools, with those over all of them if there are any."""
    if not launch_options.cluster_limits:
        return NodePoolLimits(launch_options, state_nodes)
    return ClusterLimits(launch_options, state_nodes)
