"""kube-scheduler's cache: all nodes with their bound, assumed and nominated pods, and when each node last changed."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from local.kubernetes.scheduler.node_info import NodeInfo, PodInfo
from local.kubernetes.scheduler.pod_counts import PodCounts
from shared.api.labels import ZONE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from local.kubernetes.scheduler.pod_counts import AffinityTerm, MatchingPods, PodSelector
    from shared.api.kubernetes import Node
    from shared.api.quantity import Resources


class Cache:
    """Nodes by name. Every change increments ``generation``, so that a scheduling cycle updates changed nodes only."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeInfo] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        """The labels of each namespace."""
        self.generation = 0
        self._node_generations: dict[str, int] = {}
        self._pods_of_missing_nodes: dict[str, dict[str, PodInfo]] = {}
        self._node_of_pod: dict[str, str] = {}
        self._nodes_added = 0
        self._devices: Mapping[str, Resources] = {}
        self._nodes_in_order: list[NodeInfo] | None = None
        self._nominated_pods: dict[str, dict[str, PodInfo]] = {}
        """By node, which may not exist."""
        self._nominated_nodes: dict[str, str] = {}
        """By the pod's uid."""
        self._pod_counts = PodCounts(self.namespaces)

    def update_node(self, node: Node) -> None:
        """Add or update a node. Pods that were bound to it before it was known are added to it."""
        name = node.metadata.name
        node_info = self.nodes.get(name)
        if node_info is None:
            self._nodes_added += 1
            node_info = self.nodes[name] = NodeInfo(node, self._nodes_added)
            node_info.set_node(node, self._devices.get(name, {}))
            self._nodes_in_order = None
            for pod in self._pods_of_missing_nodes.pop(name, {}).values():
                self._add_to_node(node_info, pod)
        else:
            if node_info.labels.get(ZONE) != node.metadata.labels.get(ZONE):
                self._nodes_in_order = None
            node_info.set_node(node, self._devices.get(name, {}))
        self._mark_changed(name)

    def set_devices(self, by_node: Mapping[str, Resources]) -> None:
        """Set the devices that nodes have in addition to what their kubelets report."""
        self._devices = by_node
        for name, node_info in self.nodes.items():
            node_info.set_node(node_info.node, by_node.get(name, {}))
            self._mark_changed(name)

    def remove_node(self, name: str) -> None:
        """Remove a node. Its pods count nowhere until they are removed or the node is added again."""
        node_info = self.nodes.pop(name, None)
        if node_info is None:
            return
        self._nodes_in_order = None
        for uid in list(node_info.pods):
            self._pods_of_missing_nodes.setdefault(name, {})[uid] = self._remove_from_node(node_info, uid)
        self._mark_changed(name)

    def add_pod(self, node: str, pod: PodInfo) -> None:
        """Add a bound or assumed pod to a node; the same pod in the same state changes nothing."""
        node_info = self.nodes.get(node)
        if self._node_of_pod.get(pod.uid) == node and node_info is not None:
            known = node_info.pods.get(pod.uid)
            same = known is not None and known.signature.key == pod.signature.key
            if same and known is not None and known.terminating == pod.terminating:
                return
        self.remove_pod(pod.uid)
        self._node_of_pod[pod.uid] = node
        if node_info is None:
            self._pods_of_missing_nodes.setdefault(node, {})[pod.uid] = pod
            return
        self._add_to_node(node_info, pod)
        self._mark_changed(node)

    def remove_pod(self, uid: str) -> None:
        """Remove a pod from its node, if it has one."""
        node = self._node_of_pod.pop(uid, None)
        if node is None:
            return
        node_info = self.nodes.get(node)
        if node_info is None or uid not in node_info.pods:
            self._pods_of_missing_nodes.get(node, {}).pop(uid, None)
            return
        self._remove_from_node(node_info, uid)
        self._mark_changed(node)

    def node_of(self, uid: str) -> str:
        """The node on which the pod is bound or assumed; "" if there is none."""
        return self._node_of_pod.get(uid, "")

    # Nominations

    def nominate(self, pod: PodInfo, node: str) -> None:
        """Reserve room for a pending pod on the node (``status.nominatedNodeName``), which need not exist."""
        known = self._nominated_pods.get(self.nominated_node(pod.uid), {}).get(pod.uid)
        if known is not None and self.nominated_node(pod.uid) == node and known.signature.key == pod.signature.key:
            return
        self.remove_nomination(pod.uid)
        self._nominated_nodes[pod.uid] = node
        self._nominated_pods.setdefault(node, {})[pod.uid] = pod
        self._mark_nominations_changed(node)

    def remove_nomination(self, uid: str) -> None:
        """Release the room reserved for the pod, if any."""
        node = self._nominated_nodes.pop(uid, None)
        if node is None:
            return
        pods = self._nominated_pods[node]
        del pods[uid]
        if not pods:
            del self._nominated_pods[node]
        self._mark_nominations_changed(node)

    def nominated_node(self, uid: str) -> str:
        """The node for which the pod is nominated; "" if there is none."""
        return self._nominated_nodes.get(uid, "")

    def nominated_pods(self, node: str, *, priority: int, other_than: str = "") -> list[PodInfo]:
        """The pods nominated for the node to which a pod of this priority yields: of equal or higher priority."""
        pods = self._nominated_pods.get(node)
        if not pods:
            return []
        return [pod for uid, pod in pods.items() if pod.signature.priority >= priority and uid != other_than]

    # Counts and order

    @property
    def nodes_in_order(self) -> list[NodeInfo]:
        """All nodes in kube-scheduler's order: zones in turn, in each zone by arrival (node_tree.go)."""
        if self._nodes_in_order is None:
            by_zone: dict[str, list[NodeInfo]] = {}
            for node_info in self.nodes.values():
                by_zone.setdefault(node_info.labels.get(ZONE, ""), []).append(node_info)
            rounds = zip_longest(*by_zone.values())
            self._nodes_in_order = [node for turn in rounds for node in turn if node is not None]
        return self._nodes_in_order

    def rebuild_pod_counts(self) -> None:
        """Count all pods again: namespaces' labels changed, and with them the pods that namespaceSelectors select."""
        self._pod_counts = PodCounts(self.namespaces)
        for node_info in self.nodes.values():
            for pod in node_info.pods.values():
                self._pod_counts.count(node_info.name, pod, 1)
        for name in self.nodes:
            self._mark_changed(name)

    def changed_since(self, generation: int) -> Iterator[tuple[str, NodeInfo | None]]:
        """Nodes that changed after that generation, the latest first; None for removed nodes."""
        for name, node_generation in reversed(self._node_generations.items()):
            if node_generation <= generation:
                return
            yield name, self.nodes.get(name)

    def matching_pods(self, selectors: tuple[PodSelector, ...], *, exclude_terminating: bool) -> MatchingPods:
        """The pods on nodes that all selectors select, counted by node."""
        return self._pod_counts.matching_pods(
            selectors, exclude_terminating=exclude_terminating, nodes=self.nodes.values()
        )

    @property
    def anti_affinity_terms(self) -> list[AffinityTerm]:
        """Every required anti-affinity term of pods on nodes; the list only grows until ``rebuild_pod_counts``."""
        return self._pod_counts.anti_affinity_terms

    @property
    def scoring_terms(self) -> list[AffinityTerm]:
        """Every affinity term of pods on nodes that scores; the list only grows until ``rebuild_pod_counts``."""
        return self._pod_counts.scoring_terms

    def _add_to_node(self, node_info: NodeInfo, pod: PodInfo) -> None:
        node_info.add_pod(pod)
        self._pod_counts.count(node_info.name, pod, 1)

    def _remove_from_node(self, node_info: NodeInfo, uid: str) -> PodInfo:
        pod = node_info.remove_pod(uid)
        self._pod_counts.count(node_info.name, pod, -1)
        return pod

    def _mark_nominations_changed(self, name: str) -> None:
        if name in self.nodes:
            self._mark_changed(name)

    def _mark_changed(self, name: str) -> None:
        self.generation += 1
        # Moved to the end, so that the latest changes come last.
        self._node_generations.pop(name, None)
        self._node_generations[name] = self.generation
