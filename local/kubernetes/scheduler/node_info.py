"""A node and the pods on it, with their requests summed in exact integers: kube-scheduler's ``NodeInfo``."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from shared.api.quantity import parse_resources
from shared.base.struct import MutableStruct, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from local.kubernetes.scheduler.pod_signature import PodSignature, Port
    from shared.api.kubernetes import Node
    from shared.api.quantity import Resources


class PodInfo(Struct, eq=False):
    """A pod that is bound to a node, assumed there, or nominated."""

    uid: str
    signature: PodSignature
    terminating: bool = False


class NodeInfo(MutableStruct):
    """One node; ``order`` is its order of arrival."""

    node: Node
    order: int
    allocatable: Resources = {}
    requested: Counter[str] = msgspec.field(default_factory=Counter)
    requested_for_scoring: Counter[str] = msgspec.field(default_factory=Counter)
    """CPU and memory with the defaults for containers that request none."""
    used_ports: Counter[Port] = msgspec.field(default_factory=Counter)
    pods: dict[str, PodInfo] = {}

    def __post_init__(self) -> None:
        self.set_node(self.node)

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name

    @property
    def labels(self) -> dict[str, str]:
        """The node's labels."""
        return self.node.metadata.labels

    def set_node(self, node: Node, devices: Mapping[str, int] = MappingProxyType({})) -> None:
        """Replace the node's state and keep its pods. ``devices`` count where the kubelet reports none."""
        self.node = node
        reported = parse_resources(node.status.allocatable)
        self.allocatable = {**devices, **{name: amount for name, amount in reported.items() if amount}}

    def add_pod(self, pod: PodInfo) -> None:
        """Add a pod and its requests."""
        self.pods[pod.uid] = pod
        self.requested.update(pod.signature.requests)
        self.requested_for_scoring.update(pod.signature.requests_for_scoring)
        self.used_ports.update(pod.signature.ports)

    def remove_pod(self, uid: str) -> PodInfo:
        """Remove a pod and its requests."""
        pod = self.pods.pop(uid)
        self.requested.subtract(pod.signature.requests)
        self.requested_for_scoring.subtract(pod.signature.requests_for_scoring)
        self.used_ports.subtract(pod.signature.ports)
        return pod

    def with_pods(self, pods: Iterable[PodInfo]) -> NodeInfo:
        """A copy that has these pods too; for filters only, so without requests for scoring."""
        copy = NodeInfo(
            self.node,
            self.order,
            requested=Counter(self.requested),
            used_ports=Counter(self.used_ports),
            pods=dict(self.pods),
        )
        copy.allocatable = self.allocatable
        for pod in pods:
            copy.add_pod(pod)
        return copy
