"""The pods that DaemonSets run on nodes. Nodes are planned with room for them before other pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.meta import namespaced_ref
from shared.api.pods import spec_requests, unsupported_fields
from shared.api.quantity import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, QuantityError, Resources, largest
from shared.api.taints import REPELLING, untolerated
from shared.base.struct import Struct
from shared.scheduling.rules.host_ports import host_ports
from shared.scheduling.rules.limit_ranges import admitted, container_defaults
from shared.scheduling.rules.node_affinity import required_alternatives
from shared.scheduling.rules.requirements import ABSENT, RequirementError, Requirements
from shared.scheduling.rules.unsupported_fields import named_fields
from shared.scheduling.state.instance_type_arrays import allowed_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from shared.api.daemon_set import DaemonSet
    from shared.api.kubernetes import Pod, Taint, Toleration
    from shared.api.meta import ObjectRef
    from shared.scheduling.rules.host_ports import HostPort
    from shared.scheduling.state.instance_type_arrays import InstanceTypeArrays
    from shared.snapshot import Snapshot

    Bools = NDArray[np.bool_]

_OF_EVERY_NODE = frozenset({CPU, MEMORY, PODS, EPHEMERAL_STORAGE})


class DaemonSetPod(Struct, kw_only=True, eq=False):
    """The pod of one DaemonSet: what it requests, and the nodes it runs on."""

    ref: ObjectRef
    requests: Resources
    alternatives: tuple[Requirements, ...]
    tolerations: tuple[Toleration, ...]
    ports: frozenset[HostPort]

    @property
    def devices(self) -> tuple[str, ...]:
        """The requested resources that not every node has."""
        return tuple(name for name, amount in self.requests.items() if amount and name not in _OF_EVERY_NODE)

    def runs_on_node(self, labels: Mapping[str, str], taints: Iterable[Taint]) -> bool:
        """Whether the pod runs on a node with these labels and taints."""
        if untolerated(self.tolerations, taints, effects=REPELLING) is not None:
            return False
        return any(
            all(allowed.has(labels.get(key)) for key, allowed in alternative.items())
            for alternative in self.alternatives
        )

    def runs_on_types(
        self, arrays: InstanceTypeArrays, requirements: Requirements, taints: Iterable[Taint], offerings: Bools
    ) -> Bools | None:
        """Which instance types of a NodePool run the pod in any of the offerings; None where no node of it does.

        ``requirements`` and ``taints`` are those of the NodePool's nodes.
        """
        if untolerated(self.tolerations, taints, effects=REPELLING) is not None:
            return None
        runs: Bools | None = None
        for alternative in self.alternatives:
            custom_labels = {key: allowed for key, allowed in alternative.items() if not arrays.knows(key)}
            if any((requirements.get(key, ABSENT) & allowed).empty for key, allowed in custom_labels.items()):
                continue
            types, allowed_offerings = allowed_in(arrays, alternative)
            by_alternative = types & (arrays.offered & (offerings & allowed_offerings)).any(1)
            runs = by_alternative if runs is None else runs | by_alternative
        return runs


def daemon_set_pods(snapshot: Snapshot) -> tuple[DaemonSetPod, ...]:
    """The pods of the snapshot's DaemonSets; one with invalid requests or node affinity has no pods and is skipped.

    One with unsupported fields is skipped too: without its devices, its pods run on no new node.
    A pod requests what its template says after its namespace's LimitRanges, or what the newest pod of the DaemonSet
    requests, whichever is more: webhooks and autoscalers change requests too, and a node that is too small for its
    DaemonSets is launched for nothing.
    """
    return _read(snapshot).pods


def unreadable_daemon_sets(snapshot: Snapshot) -> Mapping[ObjectRef, str]:
    """Why DaemonSets are skipped by :func:`daemon_set_pods`."""
    return _read(snapshot).unreadable


def may_be_ignored(snapshot: Snapshot) -> bool:
    """Whether new nodes might keep no room for a DaemonSet: one is unreadable, or requests what not every node has."""
    return bool(unreadable_daemon_sets(snapshot)) or any(pod.devices for pod in daemon_set_pods(snapshot))


class _DaemonSets(Struct, kw_only=True, eq=False):
    pods: tuple[DaemonSetPod, ...]
    unreadable: Mapping[ObjectRef, str]


def _read(snapshot: Snapshot) -> _DaemonSets:
    return snapshot.derive("daemon_sets", lambda: _daemon_sets(snapshot))


def _daemon_sets(snapshot: Snapshot) -> _DaemonSets:
    newest_pods = _newest_pods(snapshot.pods)
    pods: list[DaemonSetPod] = []
    unreadable: dict[ObjectRef, str] = {}
    for daemon_set in sorted(snapshot.daemon_sets, key=lambda d: (d.metadata.namespace, d.metadata.name)):
        if fields := unsupported_fields(daemon_set.spec.template.spec):
            unreadable[_ref(daemon_set)] = f"not supported: {named_fields(fields)}"
            continue
        newest = newest_pods.get((daemon_set.metadata.namespace, daemon_set.metadata.name))
        try:
            pods.append(_pod_of(daemon_set, newest, snapshot))
        except (QuantityError, RequirementError) as error:
            unreadable[_ref(daemon_set)] = str(error)
    return _DaemonSets(pods=tuple(pods), unreadable=unreadable)


def _pod_of(daemon_set: DaemonSet, newest: Pod | None, snapshot: Snapshot) -> DaemonSetPod:
    """The DaemonSet's pod.

    Raises:
        QuantityError: a request is invalid.
        RequirementError: the node affinity is invalid.
    """
    spec, namespace = daemon_set.spec.template.spec, daemon_set.metadata.namespace
    defaults = container_defaults(r for r in snapshot.limit_ranges if r.metadata.namespace == namespace)
    requests = spec_requests(admitted(spec, defaults))
    return DaemonSetPod(
        ref=_ref(daemon_set),
        requests=largest(requests, spec_requests(newest.spec)) if newest is not None else requests,
        alternatives=required_alternatives(spec),
        tolerations=tuple(spec.tolerations),
        ports=host_ports(spec),
    )


def _ref(daemon_set: DaemonSet) -> ObjectRef:
    return namespaced_ref(daemon_set.api_version, daemon_set.kind, daemon_set.metadata)


def _newest_pods(pods: Iterable[Pod]) -> dict[tuple[str, str], Pod]:
    """By namespace and name of their DaemonSet: the pods that were created last."""
    newest: dict[tuple[str, str], Pod] = {}
    for pod in pods:
        for owner in pod.metadata.owner_references:
            if owner.kind == "DaemonSet" and owner.controller:
                key = pod.metadata.namespace, owner.name
                if key not in newest or _age_order(newest[key]) < _age_order(pod):
                    newest[key] = pod
    return newest


def _age_order(pod: Pod) -> tuple[float, str]:
    created = pod.metadata.creation_timestamp
    return created.timestamp() if created is not None else 0.0, pod.metadata.name
