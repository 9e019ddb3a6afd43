"""The scheduling cycle of the pods with one signature: filter the nodes, score them, and select the best.

Results are kept between cycles. Only nodes that changed are filtered and scored again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from local.kubernetes.scheduler import node_plugins
from local.kubernetes.scheduler.score_plugins import PreferenceScores, node_score
from local.kubernetes.scheduler.topology_plugins import existing_anti_affinity_plugins, topology_plugins

if TYPE_CHECKING:
    from local.kubernetes.scheduler.cache import Cache
    from local.kubernetes.scheduler.node_info import NodeInfo
    from local.kubernetes.scheduler.pod_signature import PodSignature
    from local.kubernetes.scheduler.topology_plugins import TopologyPlugin
    from local.kubernetes.scheduler.volume_plugins import VolumeBinder


class SchedulingCycle:
    """One signature's filter and score results for the nodes of the cache."""

    def __init__(self, signature: PodSignature, cache: Cache, volumes: VolumeBinder) -> None:
        self.signature = signature
        self._cache = cache
        self._volumes = volumes
        self._passed: dict[str, NodeInfo] = {}
        """The nodes that the node and volume plugins accept."""
        self._scores: dict[str, int] = {}
        self._rejected: dict[str, tuple[str, ...]] = {}
        """The reasons of the node and volume plugins."""
        self._topology_plugins = topology_plugins(signature, cache)
        self._preferences = PreferenceScores(signature, cache)
        self._anti_affinity_terms_seen = 0
        self._existing_anti_affinity: list[TopologyPlugin] = []
        self._generation = 0
        self._volumes_version: object = None
        self._unschedulable_state: object = None
        self._fit_error = ""

    @property
    def is_unschedulable(self) -> bool:
        """Whether nothing has changed since no node was feasible."""
        return self._unschedulable_state == self._state()

    def select_node(self) -> NodeInfo | None:
        """The feasible node with the best score; None if no node is feasible."""
        if self.is_unschedulable:
            return None
        if self._volumes.pre_filter(self.signature):
            self._mark_unschedulable()
            return None
        self._update()
        for plugin in (*self._topology_plugins, *self._existing_anti_affinity):
            plugin.pre_filter()
        feasible = [node for node in self._passed.values() if not self._topology_reason(node)]
        if not feasible:
            self._mark_unschedulable()
            return None
        preferences = self._preferences.scores(feasible)
        return max(feasible, key=lambda n: (self._scores[n.name] + preferences.get(n.name, 0), -n.order))

    def fit_error(self) -> str:
        """kube-scheduler's message why no node is feasible; for use right after ``select_node`` returned None."""
        if not self._fit_error:
            self._fit_error = self._explain()
        return self._fit_error

    def _state(self) -> tuple[int, object]:
        return self._cache.generation, self._volumes.version_for(self.signature)

    def _mark_unschedulable(self) -> None:
        self._unschedulable_state = self._state()
        self._fit_error = ""

    def _explain(self) -> str:
        total = len(self._cache.nodes)
        if not total:
            return "no nodes available to schedule pods"
        if reason := self._volumes.pre_filter(self.signature):
            hint = f"{total} Preemption is not helpful for scheduling."
            return f"0/{total} nodes are available: {reason}. preemption: 0/{total} nodes are available: {hint}"
        counts: Counter[str] = Counter()
        unresolvable = 0
        for name in self._cache.nodes:
            reasons = self._reasons(name)
            counts.update(reasons)
            unresolvable += any(node_plugins.is_unresolvable(reason) for reason in reasons)
        why = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
        hints: list[str] = []
        if total - unresolvable:
            hints.append(f"{total - unresolvable} No preemption victims found for incoming pod")
        if unresolvable:
            hints.append(f"{unresolvable} Preemption is not helpful for scheduling")
        return f"0/{total} nodes are available: {why}. preemption: 0/{total} nodes are available: {', '.join(hints)}."

    def _reasons(self, name: str) -> tuple[str, ...]:
        if name in self._rejected:
            return self._rejected[name]
        if name in self._passed:
            return (self._topology_reason(self._passed[name]),)
        return (node_plugins.NODE_AFFINITY,)  # not one of the nodes that the pod's affinity names

    def _topology_reason(self, node_info: NodeInfo) -> str:
        for plugin in self._topology_plugins:
            if reason := plugin.filter(node_info):
                return reason
        for plugin in self._existing_anti_affinity:
            if reason := plugin.filter(node_info):
                return reason
        return ""

    def _update(self) -> None:
        """Filter and score every node that changed since the last cycle."""
        if self._volumes_version != (version := self._volumes.version_for(self.signature)):
            self._volumes_version = version
            self._generation = 0
        terms = self._cache.anti_affinity_terms
        for plugin in existing_anti_affinity_plugins(self.signature, terms[self._anti_affinity_terms_seen :]):
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
            self._preferences.update_node(name, changed_node)
            self._filter(name, changed_node)

    def _filter(self, name: str, node_info: NodeInfo | None) -> None:
        for results in (self._passed, self._scores, self._rejected):
            results.pop(name, None)
        if node_info is None:
            return
        if self.signature.node_names is not None and name not in self.signature.node_names:
            self._rejected[name] = (node_plugins.NODE_AFFINITY,)
            return
        reasons = node_plugins.filter_node(self.signature, node_info)
        if not reasons and self.signature.claims:
            reasons = self._volumes.filter(self.signature, node_info)
        if reasons:
            self._rejected[name] = reasons
        else:
            self._passed[name] = node_info
            self._scores[name] = node_score(self.signature, node_info)
