"""The scheduling cycle of the pods with one signature: filter the nodes, score them, and select the best.

Results are kept between cycles. Only nodes that changed are filtered and scored again.
Source: ``pkg/scheduler/schedule_one.go`` and ``framework/runtime/framework.go`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from local.kubernetes.scheduler import node_plugins, queueing_hints, topology_plugins, volume_plugins
from local.kubernetes.scheduler.score_plugins import NodeScores

if TYPE_CHECKING:
    from random import Random

    from local.kubernetes.scheduler.cache import Cache
    from local.kubernetes.scheduler.node_info import NodeInfo, PodInfo
    from local.kubernetes.scheduler.pod_counts import PodSelector
    from local.kubernetes.scheduler.pod_signature import PodSignature
    from local.kubernetes.scheduler.topology_plugins import TopologyPlugin
    from local.kubernetes.scheduler.volume_plugins import VolumeBinder

MIN_FEASIBLE_NODES = 100
"""Clusters with fewer nodes are searched whole."""
_MIN_PERCENTAGE, _MAX_PERCENTAGE, _NODES_PER_PERCENT = 5, 50, 125


class NodeSearch:
    """Where the search for feasible nodes of a large cluster continues: each pod's begins where the last one ended."""

    def __init__(self) -> None:
        self.next_start = 0


def feasible_nodes_to_find(nodes: int) -> int:
    """After how many feasible nodes the search ends: all below 100 nodes, else 50 % down to 5 % of them."""
    if nodes < MIN_FEASIBLE_NODES:
        return nodes
    percentage = max(_MAX_PERCENTAGE - nodes // _NODES_PER_PERCENT, _MIN_PERCENTAGE)
    return max(nodes * percentage // 100, MIN_FEASIBLE_NODES)


class SchedulingCycle:
    """One signature's filter and score results for the nodes of the cache."""

    def __init__(
        self,
        signature: PodSignature,
        cache: Cache,
        volumes: VolumeBinder,
        default_selectors: tuple[PodSelector, ...],
        *,
        search: NodeSearch,
        rng: Random,
    ) -> None:
        """A cycle for this signature; ``rng`` chooses among nodes with equal scores."""
        self.signature = signature
        self._cache = cache
        self._volumes = volumes
        self._search = search
        self._rng = rng
        self._passed: dict[str, NodeInfo] = {}
        """The nodes that the node and volume plugins accept."""
        self._rejected: dict[str, tuple[str, ...]] = {}
        """The reasons of the node and volume plugins."""
        self._nominated: dict[str, list[PodInfo]] = {}
        """The nominated pods of passed nodes whose room the pod must leave."""
        self._topology_plugins = topology_plugins.topology_plugins(signature, cache)
        self._scores = NodeScores(signature, cache, default_selectors)
        self._anti_affinity_terms_seen = 0
        self._existing_anti_affinity: list[TopologyPlugin] = []
        self._generation = 0
        self._volumes_version: object = None
        self._unschedulable_state: object = None
        self._reasons_counted: tuple[Counter[str], int] | None = None

    def select_node(self, uid: str) -> NodeInfo | None:
        """The node for a pod with this signature; None if no node is feasible.

        The pod's nominated node is taken if it is feasible, without a look at others.
        """
        nominated = self._cache.nodes.get(self._cache.nominated_node(uid))
        if nominated is not None and self._is_feasible_for_nominated(nominated, uid):
            return nominated
        if self._unschedulable_state == self._state():
            return None
        if self._is_claim_in_use() or self._volumes.pre_filter(self.signature):
            self._mark_unschedulable()
            return None
        self._update()
        self._pre_filter()
        feasible = self._feasible_nodes(nominated)
        if not feasible:
            self._mark_unschedulable()
            return None
        if len(feasible) == 1:
            return feasible[0]
        scores = self._scores.scores(feasible)
        highest = max(scores)
        return self._rng.choice([node for node, score in zip(feasible, scores, strict=True) if score == highest])

    def rejected_by(self) -> frozenset[str]:
        """The plugins that rejected the nodes; for use right after ``select_node`` returned None."""
        if self._is_claim_in_use():
            return frozenset({queueing_hints.VOLUME_RESTRICTIONS})
        if self._volumes.pre_filter(self.signature):
            return frozenset({queueing_hints.VOLUME_BINDING})
        counts, _ = self._count_reasons()
        return frozenset(plugin_of(reason) for reason in counts)

    def fit_error(self, *, can_preempt: bool = True) -> str:
        """kube-scheduler's message why no node is feasible; for use right after ``select_node`` returned None."""
        total = len(self._cache.nodes)
        if not total:
            return "no nodes available to schedule pods"
        if self._is_claim_in_use():
            why, unresolvable = f"{total} {volume_plugins.CLAIM_IN_USE}", 0
        elif reason := self._volumes.pre_filter(self.signature):
            why, unresolvable = reason, total
        else:
            counts, unresolvable = self._count_reasons()
            why = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
        message = f"0/{total} nodes are available: {why}. preemption: "
        if not can_preempt:
            return f"{message}not eligible due to preemptionPolicy=Never."
        hints: list[str] = []
        if total - unresolvable:
            hints.append(f"{total - unresolvable} No preemption victims found for incoming pod")
        if unresolvable:
            hints.append(f"{unresolvable} Preemption is not helpful for scheduling")
        return f"{message}0/{total} nodes are available: {', '.join(hints)}."

    def _is_claim_in_use(self) -> bool:
        """Whether a pod on any node uses a ReadWriteOncePod claim of the pod's."""
        exclusive = self._volumes.exclusive_claims(self.signature)
        return bool(exclusive) and any(
            pod.signature.namespace == self.signature.namespace and not exclusive.isdisjoint(pod.signature.claims)
            for node in self._cache.nodes.values()
            for pod in node.pods.values()
        )

    def _state(self) -> tuple[int, object]:
        return self._cache.generation, self._volumes.version_for(self.signature)

    def _mark_unschedulable(self) -> None:
        self._unschedulable_state = self._state()
        self._reasons_counted = None

    def _count_reasons(self) -> tuple[Counter[str], int]:
        """How many nodes each reason rejected, and on how many preemption would not help."""
        if self._reasons_counted is None:
            counts: Counter[str] = Counter()
            unresolvable = 0
            for name in self._cache.nodes:
                reasons = self._reasons(name)
                counts.update(reasons)
                unresolvable += any(node_plugins.is_unresolvable(reason) for reason in reasons)
            self._reasons_counted = counts, unresolvable
        return self._reasons_counted

    def _reasons(self, name: str) -> tuple[str, ...]:
        if name in self._rejected:
            return self._rejected[name]
        if name in self._passed:
            return (self._topology_reason(self._passed[name], self._nominated.get(name, [])),)
        return (node_plugins.NOT_NAMED,)

    # Filters

    def _feasible_nodes(self, nominated: NodeInfo | None) -> list[NodeInfo]:
        """The feasible nodes; in a large cluster the first ones from where the last search ended.

        ``nominated`` is the pod's own nominated node, which was not feasible.
        """
        total = len(self._cache.nodes)
        limit = feasible_nodes_to_find(total)
        if limit == total:
            return [node for node in self._passed.values() if node is not nominated and self._is_feasible(node)]
        nodes = self._cache.nodes_in_order
        start = self._search.next_start % total
        feasible: list[NodeInfo] = []
        for i in range(total):
            node = nodes[(start + i) % total]
            if node.name in self._passed and node is not nominated and self._is_feasible(node):
                feasible.append(node)
                if len(feasible) == limit:
                    self._search.next_start = (start + i + 1) % total
                    break
        return feasible

    def _is_feasible(self, node_info: NodeInfo) -> bool:
        return not self._topology_reason(node_info, self._nominated.get(node_info.name, []))

    def _is_feasible_for_nominated(self, node_info: NodeInfo, uid: str) -> bool:
        """Whether the node is feasible for the pod that is nominated for it."""
        if self._is_claim_in_use() or self._volumes.pre_filter(self.signature):
            return False
        nominated = self._nominated_pods(node_info.name, other_than=uid)
        if self._filter_reasons(node_info, nominated):
            return False
        if self._topology_plugins or self._cache.anti_affinity_terms:
            self._update()
            self._pre_filter()
        return not self._topology_reason(node_info, nominated)

    def _nominated_pods(self, node: str, *, other_than: str = "") -> list[PodInfo]:
        return self._cache.nominated_pods(node, priority=self.signature.priority, other_than=other_than)

    def _pre_filter(self) -> None:
        for plugin in (*self._topology_plugins, *self._existing_anti_affinity):
            plugin.pre_filter()

    def _topology_reason(self, node_info: NodeInfo, nominated: list[PodInfo]) -> str:
        for plugin in self._topology_plugins:
            if reason := plugin.filter(node_info, nominated):
                return reason
        for plugin in self._existing_anti_affinity:
            if reason := plugin.filter(node_info, nominated):
                return reason
        if nominated and topology_plugins.repelled_by_nominated(
            self.signature, node_info, nominated, self._cache.namespaces
        ):
            return topology_plugins.EXISTING_ANTI_AFFINITY
        return ""

    def _filter_reasons(self, node_info: NodeInfo, nominated: list[PodInfo]) -> tuple[str, ...]:
        """The reasons of node and volume plugins: as the node is, and as if the nominated pods were on it too."""
        reasons = self._node_reasons(node_info)
        if not reasons and nominated:
            reasons = self._node_reasons(node_info.with_pods(nominated))
        return reasons

    def _node_reasons(self, node_info: NodeInfo) -> tuple[str, ...]:
        reasons = node_plugins.filter_node(self.signature, node_info)
        if not reasons and self.signature.claims:
            reasons = self._volumes.filter(self.signature, node_info)
        return reasons

    def _update(self) -> None:
        """Filter and score every node that changed since the last cycle."""
        if self._volumes_version != (version := self._volumes.version_for(self.signature)):
            self._volumes_version = version
            self._generation = 0
        terms = self._cache.anti_affinity_terms
        new_terms = terms[self._anti_affinity_terms_seen :]
        for plugin in topology_plugins.existing_anti_affinity_plugins(self.signature, new_terms):
            for name, node_info in self._cache.nodes.items():
                plugin.update_node(name, node_info)
            self._existing_anti_affinity.append(plugin)
        self._anti_affinity_terms_seen = len(terms)
        node_names = self.signature.node_names
        if node_names is not None and not self._topology_plugins and not self._existing_anti_affinity:
            changed = [(name, self._cache.nodes.get(name)) for name in sorted(node_names)]
        else:
            changed = list(self._cache.changed_since(self._generation))
        self._generation = self._cache.generation
        for name, changed_node in changed:
            for plugin in (*self._topology_plugins, *self._existing_anti_affinity):
                plugin.update_node(name, changed_node)
            self._filter(name, changed_node)
            self._scores.update_node(name, changed_node, is_feasible=name in self._passed)

    def _filter(self, name: str, node_info: NodeInfo | None) -> None:
        self._passed.pop(name, None)
        self._rejected.pop(name, None)
        self._nominated.pop(name, None)
        if node_info is None:
            return
        if self.signature.node_names is not None and name not in self.signature.node_names:
            self._rejected[name] = (node_plugins.NOT_NAMED,)
            return
        nominated = self._nominated_pods(name)
        reasons = self._filter_reasons(node_info, nominated)
        if reasons:
            self._rejected[name] = reasons
            return
        self._passed[name] = node_info
        if nominated:
            self._nominated[name] = nominated


_PLUGINS = {
    node_plugins.UNSCHEDULABLE: queueing_hints.NODE_UNSCHEDULABLE,
    node_plugins.UNTOLERATED_TAINT: queueing_hints.TAINT_TOLERATION,
    node_plugins.NODE_AFFINITY: queueing_hints.NODE_AFFINITY,
    node_plugins.NOT_NAMED: queueing_hints.NODE_AFFINITY,
    node_plugins.NODE_PORTS: queueing_hints.NODE_PORTS,
    volume_plugins.MAX_VOLUME_COUNT: queueing_hints.NODE_VOLUME_LIMITS,
    volume_plugins.NODE_AFFINITY_CONFLICT: queueing_hints.VOLUME_BINDING,
    volume_plugins.VOLUME_NOT_FOUND: queueing_hints.VOLUME_BINDING,
    volume_plugins.NO_VOLUME_TO_BIND: queueing_hints.VOLUME_BINDING,
    topology_plugins.TOPOLOGY_SPREAD: queueing_hints.POD_TOPOLOGY_SPREAD,
    topology_plugins.TOPOLOGY_SPREAD_LABEL: queueing_hints.POD_TOPOLOGY_SPREAD,
    topology_plugins.AFFINITY: queueing_hints.INTER_POD_AFFINITY,
    topology_plugins.ANTI_AFFINITY: queueing_hints.INTER_POD_AFFINITY,
    topology_plugins.EXISTING_ANTI_AFFINITY: queueing_hints.INTER_POD_AFFINITY,
    node_plugins.UNALLOCATED_CLAIMS: queueing_hints.DYNAMIC_RESOURCES,
}


def plugin_of(reason: str) -> str:
    """The plugin that gives this reason; all others are NodeResourcesFit's ("Insufficient cpu")."""
    if reason.endswith(volume_plugins.DRIVER_MISSING):
        return queueing_hints.NODE_VOLUME_LIMITS
    return _PLUGINS.get(reason, queueing_hints.NODE_RESOURCES_FIT)
