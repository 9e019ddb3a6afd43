"""The virtual fleet during one run: Tenon's nodes, the bindings of pods to them, and the cluster that decisions see.

The virtual cluster has the real pods under their own names and requests. A pod on a node that another autoscaler scales
is wherever Tenon put it; pods on nodes that nobody scales stay there. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from functions.shadow.virtual_nodes import node_of
from shared.api.pods import is_pending, is_reschedulable, is_terminal, requests
from shared.api.quantity import QuantityError, parse_resources
from shared.base.struct import MutableStruct, with_fields
from shared.shadow.record import Binding, VirtualNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from shared.api.kubernetes import Node, Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.snapshot import Snapshot


class VirtualFleet(MutableStruct, kw_only=True, dict=True):
    """Tenon's fleet, and the real cluster that it is compared with.

    ``autoscalers`` says who scales each real node. ``nodes`` are by name, ``bindings`` by uid of the pod.
    ``waited`` are the pods whose wait for a real node was counted.
    """

    real: Snapshot
    autoscalers: Mapping[str, str]
    nodes: dict[str, VirtualNode]
    bindings: dict[str, Binding]

    def __post_init__(self) -> None:
        self.waited = {uid for uid, binding in self.bindings.items() if binding.is_waited}
        self._unscaled = frozenset(name for name, autoscaler in self.autoscalers.items() if not autoscaler)
        self._pods = {pod.metadata.uid: pod for pod in self.real.pods}
        self.bindings = {
            uid: binding
            for uid, binding in self.bindings.items()
            if uid in self._pods and self._is_mobile(self._pods[uid]) and self._exists(binding.node)
        }

    def _exists(self, node: str) -> bool:
        return node in self._unscaled or (node in self.nodes and self.nodes[node].ends is None)

    def _is_mobile(self, pod: Pod) -> bool:
        """Whether the pod is bound here, or needs a node: no node that nobody scales has it, and it is still there."""
        return pod.spec.node_name not in self._unscaled and not is_terminal(pod)

    # --- the virtual cluster ---

    def snapshot(self) -> Snapshot:
        """The cluster as Tenon would see it."""
        living = [node.claim for node in self.nodes.values() if node.ends is None]
        unscaled = (node for node in self.real.nodes if node.metadata.name in self._unscaled)
        return with_fields(
            self.real,
            pods=tuple(self._virtual_pods()),
            nodes=(*unscaled, *map(node_of, living)),
            node_claims=tuple(living),
        )

    def _virtual_pods(self) -> Iterator[Pod]:
        for pod in self.real.pods:
            if not self._is_mobile(pod):
                if not is_terminal(pod):
                    yield pod
                continue
            binding = self.bindings.get(pod.metadata.uid)
            if binding is not None:
                yield _moved(pod, binding.node, since=binding.since)
            elif is_reschedulable(pod):
                yield _moved(pod, "", since=None)

    def unbound_pods(self) -> tuple[Pod, ...]:
        """The pods that need a node, as the virtual cluster has them."""
        return tuple(pod for pod in self._virtual_pods() if is_pending(pod))

    # --- changes ---

    def bind(self, pods: Iterable[str], node: str, *, since: datetime) -> None:
        """Bind pods (uid) to a node, also if they were bound to another."""
        self.bindings.update({uid: Binding(node, since) for uid in pods})

    def stored_bindings(self) -> dict[str, Binding]:
        """The bindings as the record keeps them."""
        return {
            uid: with_fields(binding, is_waited=uid in self.waited) for uid, binding in sorted(self.bindings.items())
        }

    def bound_in_both(self) -> Iterator[Pod]:
        """The pods that are bound to a virtual node and to a real one, as they are."""
        return (self._pods[uid] for uid in self.bindings if self._pods[uid].spec.node_name)

    def launch(self, claim: NodeClaim, *, at: datetime) -> None:
        """Add a node that runs from ``at`` on."""
        self.nodes[claim.status.node_name] = VirtualNode(claim=claim, counted=at)

    def remove(self, node: str, *, at: datetime) -> None:
        """Remove a node, whose instance ends then; its pods are unbound."""
        self.nodes[node] = with_fields(self.nodes[node], ends=at)
        self.bindings = {uid: binding for uid, binding in self.bindings.items() if binding.node != node}

    def update(self, claim: NodeClaim) -> None:
        """Replace a node's NodeClaim, whose conditions changed."""
        name = claim.status.node_name
        self.nodes[name] = with_fields(self.nodes[name], claim=claim)

    def unbind_overcommitted(self) -> None:
        """Unbind the latest pods of nodes whose pods request more than they have.

        Real pods were bound to a node that nobody scales, or pods were resized: kube-scheduler and kubelets would have
        kept the room.
        """
        nodes: dict[str, Node] = {node.metadata.name: node for node in self.snapshot().nodes}
        by_node: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in self._virtual_pods():
            if pod.spec.node_name:
                by_node[pod.spec.node_name].append(pod)
        for name, pods in by_node.items():
            if name in nodes and any(pod.metadata.uid in self.bindings for pod in pods):
                self._unbind_excess(nodes[name], pods)

    def _unbind_excess(self, node: Node, pods: list[Pod]) -> None:
        try:
            available = parse_resources(node.status.allocatable)
        except QuantityError:
            return
        # Pods that can't be unbound come first, then those that were bound first.
        for pod in sorted(pods, key=lambda p: (p.metadata.uid in self.bindings, self._since(p), p.key)):
            try:
                requested = requests(pod)
            except QuantityError:
                continue
            fits = all(available.get(resource, 0) >= amount for resource, amount in requested.items() if amount)
            if not fits and pod.metadata.uid in self.bindings:
                del self.bindings[pod.metadata.uid]
                continue
            for resource, amount in requested.items():
                available[resource] = available.get(resource, 0) - amount

    def _since(self, pod: Pod) -> float:
        binding = self.bindings.get(pod.metadata.uid)
        return binding.since.timestamp() if binding is not None else 0.0


def _moved(pod: Pod, node: str, *, since: datetime | None) -> Pod:
    return with_fields(
        pod,
        spec=with_fields(pod.spec, node_name=node),
        status=with_fields(pod.status, nominated_node_name="", start_time=since),
    )
