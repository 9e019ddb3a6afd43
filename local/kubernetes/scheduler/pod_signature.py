"""What of a pod decides where it may stand. Pods of one workload have one shape, and are judged together.

kube-scheduler judges pod by pod; with thousands of equal pods that is the same answer thousands of times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from shared.api.kubernetes import Affinity, PodAffinity
from shared.api.pods import requests

if TYPE_CHECKING:
    from shared.api.kubernetes import Pod, PodAffinityTerm, PodSpec, PreferredSchedulingTerm, WeightedPodAffinityTerm
    from shared.api.quantity import Resources

Port = tuple[str, str, int]
"""Host IP, protocol, port."""

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 (what an unset hostIP means to the scheduler; nothing listens)


@dataclass(frozen=True, eq=False)
class Shape:
    """One kind of pod, as far as placement goes."""

    key: bytes
    namespace: str
    labels: dict[str, str]
    spec: PodSpec
    requests: Resources
    ports: frozenset[Port]
    claims: tuple[str, ...]
    """Names of the volume claims, in the pod's namespace."""
    only: frozenset[str] | None
    """The nodes that required affinity names by ``metadata.name`` (a DaemonSet's pods); None: any."""

    @property
    def near(self) -> list[PodAffinityTerm]:
        """The required pod affinity terms."""
        return self._affinity.required_during_scheduling_ignored_during_execution

    @property
    def apart(self) -> list[PodAffinityTerm]:
        """The required pod anti-affinity terms."""
        return self._anti_affinity.required_during_scheduling_ignored_during_execution

    @property
    def likes_near(self) -> list[WeightedPodAffinityTerm]:
        """The preferred pod affinity terms."""
        return self._affinity.preferred_during_scheduling_ignored_during_execution

    @property
    def likes_apart(self) -> list[WeightedPodAffinityTerm]:
        """The preferred pod anti-affinity terms."""
        return self._anti_affinity.preferred_during_scheduling_ignored_during_execution

    @property
    def likes_nodes(self) -> list[PreferredSchedulingTerm]:
        """The preferred node affinity terms."""
        node = self.affinity.node_affinity
        return node.preferred_during_scheduling_ignored_during_execution if node else []

    @property
    def affinity(self) -> Affinity:
        """The pod's affinities, empty if it has none."""
        return self.spec.affinity or Affinity()

    @property
    def _affinity(self) -> PodAffinity:
        return self.affinity.pod_affinity or PodAffinity()

    @property
    def _anti_affinity(self) -> PodAffinity:
        return self.affinity.pod_anti_affinity or PodAffinity()


def shape_of(pod: Pod) -> Shape:
    """The pod's shape; equal keys mean equal placement.

    Raises:
        QuantityError: a request is no quantity.
    """
    meta, spec = pod.metadata, pod.spec
    claims = tuple(claim_names(pod))
    plain = msgspec.structs.replace(spec, node_name="", scheduling_gates=[], volumes=[])
    key = msgspec.json.encode((meta.namespace, sorted(meta.labels.items()), plain, claims))
    return Shape(
        key=key,
        namespace=meta.namespace,
        labels=meta.labels,
        spec=spec,
        requests=requests(pod),
        ports=_ports(spec),
        claims=claims,
        only=_named_nodes(spec),
    )


def claim_names(pod: Pod) -> list[str]:
    """The volume claims the pod mounts; a generic ephemeral volume's claim is ``<pod>-<volume>``."""
    names: list[str] = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            names.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            names.append(f"{pod.metadata.name}-{volume.name}")
    return names


def _ports(spec: PodSpec) -> frozenset[Port]:
    """The ports of the node that the pod takes; sidecars' count too, other init containers' don't."""
    running = [*spec.containers, *(c for c in spec.init_containers if c.restart_policy == "Always")]
    return frozenset(
        (port.host_ip or ANY_ADDRESS, port.protocol, port.host_port)
        for container in running
        for port in container.ports
        if port.host_port > 0
    )


def clash(a: Port, b: Port) -> bool:
    """Whether both can't be taken on one node; the unspecified address takes every address."""
    return a[1:] == b[1:] and (a[0] == b[0] or ANY_ADDRESS in {a[0], b[0]})


def _named_nodes(spec: PodSpec) -> frozenset[str] | None:
    """Every required term must name its nodes for the pod to be tied to them."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None or not required.node_selector_terms:
        return None
    names: set[str] = set()
    for term in required.node_selector_terms:
        fields = [f for f in term.match_fields if f.key == "metadata.name" and f.operator == "In"]
        if not fields:
            return None
        names.update(name for field in fields for name in field.values)
    return frozenset(names)
