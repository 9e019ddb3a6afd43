"""The fields of a pod that decide where it can be scheduled. Pods of one workload share a signature.

kube-scheduler evaluates pod by pod, or by signature with opportunistic batching. Here pods with one signature are
always evaluated together, because thousands of equal pods get the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shared.api.kubernetes import Affinity, PodAffinity
from shared.api.pods import controller, requests
from shared.api.quantity import CPU, MEMORY
from shared.base.struct import Struct, with_fields

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from shared.api.containers import Container
    from shared.api.kubernetes import (
        Pod,
        PodAffinityTerm,
        PodSpec,
        PreferredSchedulingTerm,
        WeightedPodAffinityTerm,
    )
    from shared.api.quantity import Resources

Port = tuple[str, str, int]
"""Host IP, protocol, port."""

DEFAULT_REQUESTS = {CPU: "100m", MEMORY: "200Mi"}
"""What a container without a request counts as when scoring. Source: pkg/scheduler/util/pod_resources.go."""

_SPREADING_OWNERS = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})
"""The owners whose pods are spread by kube-scheduler's default constraints."""

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 (what an unset hostIP means to the scheduler; nothing listens)


class PodSignature(Struct, eq=False, weakref=True):
    """What the scheduler reads of a pod."""

    key: bytes
    namespace: str
    labels: dict[str, str]
    spec: PodSpec
    requests: Resources
    requests_for_scoring: Resources
    """CPU and memory, with :data:`DEFAULT_REQUESTS` for containers that request none."""
    ports: frozenset[Port]
    claims: tuple[str, ...]
    """Names of the volume claims, in the pod's namespace."""
    node_names: frozenset[str] | None
    """The nodes that required affinity names by ``metadata.name`` (a DaemonSet's pods); None: any."""
    owner: tuple[str, str] | None
    """Kind and name of the ReplicaSet, StatefulSet or ReplicationController that controls the pod."""

    @property
    def priority(self) -> int:
        """The pod's priority."""
        return self.spec.priority or 0

    @property
    def has_pod_affinity(self) -> bool:
        """Whether the pod has any affinity or anti-affinity term for other pods."""
        affinity = self.spec.affinity
        return affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)

    @property
    def required_affinity(self) -> list[PodAffinityTerm]:
        """The required pod affinity terms."""
        return self._pod_affinity.required_during_scheduling_ignored_during_execution

    @property
    def required_anti_affinity(self) -> list[PodAffinityTerm]:
        """The required pod anti-affinity terms."""
        return self._pod_anti_affinity.required_during_scheduling_ignored_during_execution

    @property
    def preferred_affinity(self) -> list[WeightedPodAffinityTerm]:
        """The preferred pod affinity terms."""
        return self._pod_affinity.preferred_during_scheduling_ignored_during_execution

    @property
    def preferred_anti_affinity(self) -> list[WeightedPodAffinityTerm]:
        """The preferred pod anti-affinity terms."""
        return self._pod_anti_affinity.preferred_during_scheduling_ignored_during_execution

    @property
    def preferred_node_affinity(self) -> list[PreferredSchedulingTerm]:
        """The preferred node affinity terms."""
        node_affinity = self.affinity.node_affinity
        return node_affinity.preferred_during_scheduling_ignored_during_execution if node_affinity else []

    @property
    def affinity(self) -> Affinity:
        """The pod's affinity, empty if it has none."""
        return self.spec.affinity or Affinity()

    @property
    def _pod_affinity(self) -> PodAffinity:
        return self.affinity.pod_affinity or PodAffinity()

    @property
    def _pod_anti_affinity(self) -> PodAffinity:
        return self.affinity.pod_anti_affinity or PodAffinity()


def signature_of(pod: Pod, known: MutableMapping[bytes, PodSignature] | None = None) -> PodSignature:
    """The pod's signature; pods with equal keys can be scheduled to the same nodes.

    ``known`` are signatures by key, which are used again and added to.

    Raises:
        QuantityError: a request is not a quantity.
    """
    meta, spec = pod.metadata, pod.spec
    claims = tuple(claim_names(pod))
    comparable_spec = with_fields(spec, node_name="", scheduling_gates=[], volumes=[])
    owner = _spreading_owner(pod)
    key = msgspec.json.encode((meta.namespace, sorted(meta.labels.items()), comparable_spec, claims, owner))
    signature = known.get(key) if known is not None else None
    if signature is None:
        signature = PodSignature(
            key=key,
            namespace=meta.namespace,
            labels=meta.labels,
            spec=spec,
            requests=requests(pod),
            requests_for_scoring=_requests_for_scoring(pod),
            ports=_host_ports(spec),
            claims=claims,
            node_names=_required_node_names(spec),
            owner=owner,
        )
        if known is not None:
            known[key] = signature
    return signature


def claim_names(pod: Pod) -> list[str]:
    """The volume claims that the pod mounts; a generic ephemeral volume's claim is ``<pod>-<volume>``."""
    names: list[str] = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            names.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            names.append(f"{pod.metadata.name}-{volume.name}")
    return names


def _requests_for_scoring(pod: Pod) -> Resources:
    spec = with_fields(
        pod.spec,
        containers=[_with_default_requests(container) for container in pod.spec.containers],
        init_containers=[_with_default_requests(container) for container in pod.spec.init_containers],
    )
    amounts = requests(with_fields(pod, spec=spec))
    return {name: amounts.get(name, 0) for name in DEFAULT_REQUESTS}


def _with_default_requests(container: Container) -> Container:
    resources = container.resources
    stated = resources.limits.keys() | resources.requests.keys()
    missing = {name: amount for name, amount in DEFAULT_REQUESTS.items() if name not in stated}
    if not missing:
        return container
    defaulted = with_fields(resources, requests={**resources.requests, **missing})
    return with_fields(container, resources=defaulted)


def _spreading_owner(pod: Pod) -> tuple[str, str] | None:
    owner = controller(pod.metadata)
    return (owner.kind, owner.name) if owner is not None and owner.kind in _SPREADING_OWNERS else None


def _host_ports(spec: PodSpec) -> frozenset[Port]:
    """The host ports of the pod's containers and sidecars; other init containers' don't count."""
    running = [*spec.containers, *(c for c in spec.init_containers if c.restart_policy == "Always")]
    return frozenset(
        (port.host_ip or ANY_ADDRESS, port.protocol, port.host_port)
        for container in running
        for port in container.ports
        if port.host_port > 0
    )


def ports_conflict(a: Port, b: Port) -> bool:
    """Whether one node can't have both; the unspecified address conflicts with every address."""
    return a[1:] == b[1:] and (a[0] == b[0] or ANY_ADDRESS in {a[0], b[0]})


def _required_node_names(spec: PodSpec) -> frozenset[str] | None:
    """The nodes that required affinity names, if each of its terms names nodes; else None."""
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
