"""Which changes may make an unschedulable pod schedulable: kube-scheduler's queueing hints.

A pod waits until a change concerns a plugin that rejected it on some node. A change that concerns none does not retry
the pod: it keeps its nomination, and its back-off does not grow.
Source: the ``isSchedulableAfter...`` functions of ``pkg/scheduler/framework/plugins``, and ``framework/events.go``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes.scheduler.node_plugins import matches_required_node_affinity
from local.kubernetes.scheduler.pod_counts import PodSelector, affinity_selector, with_own_labels
from local.kubernetes.scheduler.pod_signature import ports_conflict
from shared.api.kubernetes import Taint
from shared.api.labels import UNSCHEDULABLE_TAINT
from shared.api.quantity import parse_resources
from shared.api.taints import tolerates, tolerates_all
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from local.kubernetes.scheduler.pod_signature import PodSignature
    from shared.api.kubernetes import Node, PodAffinityTerm, TopologySpreadConstraint

    IsWorthRequeuing = Callable[[PodSignature, frozenset[str]], bool]
    """Whether to retry the pods with a signature that these plugins rejected."""

NODE_UNSCHEDULABLE = "NodeUnschedulable"
TAINT_TOLERATION = "TaintToleration"
NODE_AFFINITY = "NodeAffinity"
NODE_PORTS = "NodePorts"
NODE_RESOURCES_FIT = "NodeResourcesFit"
NODE_VOLUME_LIMITS = "NodeVolumeLimits"
VOLUME_BINDING = "VolumeBinding"
VOLUME_RESTRICTIONS = "VolumeRestrictions"
POD_TOPOLOGY_SPREAD = "PodTopologySpread"
INTER_POD_AFFINITY = "InterPodAffinity"
DYNAMIC_RESOURCES = "DynamicResources"

_CORDONED = Taint(key=UNSCHEDULABLE_TAINT, effect="NoSchedule")
_VOLUME_PLUGINS = frozenset({VOLUME_BINDING, NODE_VOLUME_LIMITS})
_RETRIED_FOR_ANY_TAINT = frozenset({NODE_AFFINITY, NODE_PORTS, NODE_RESOURCES_FIT, INTER_POD_AFFINITY, VOLUME_BINDING})
"""The plugins that look at new nodes but not at taints. Until 1.36 a change of any node's taints, an added one too,
retries all pods that they rejected, without a look at the pod. Source: ``buildQueueingHintMap`` in scheduler.go."""
_LAST_MINOR_RETRYING_FOR_ANY_TAINT = 36


class NodeChange(Struct):
    """A node before and after a change; None before it was added and after it was removed."""

    before: Node | None
    after: Node | None
    minor: int
    """kube-scheduler's."""

    @property
    def is_relevant(self) -> bool:
        """Whether scheduling reads anything of what changed; a heartbeat is not relevant."""
        before, after = self.before, self.after
        if before is None or after is None:
            return True
        return (
            before.spec.unschedulable != after.spec.unschedulable
            or before.spec.taints != after.spec.taints
            or before.metadata.labels != after.metadata.labels
            or before.status.allocatable != after.status.allocatable
        )

    @property
    def changes_taints(self) -> bool:
        """Whether the node's taints changed, or it was uncordoned."""
        before, after = self.before, self.after
        if before is None or after is None:
            return False
        return before.spec.taints != after.spec.taints or (before.spec.unschedulable and not after.spec.unschedulable)

    def is_worth_requeuing(self, signature: PodSignature, rejected_by: frozenset[str]) -> bool:
        """Whether the change concerns a plugin that rejected pods with this signature."""
        retries_all = self.changes_taints and self.minor <= _LAST_MINOR_RETRYING_FOR_ANY_TAINT
        if retries_all and not rejected_by.isdisjoint(_RETRIED_FOR_ANY_TAINT):
            return True
        return any(hint(signature, self) for plugin, hint in _NODE_HINTS.items() if plugin in rejected_by)


def _node_unschedulable(signature: PodSignature, change: NodeChange) -> bool:
    before, after = change.before, change.after
    return (
        after is not None
        and not after.spec.unschedulable
        and (before is None or before.spec.unschedulable)
        and not tolerates(signature.spec.tolerations, _CORDONED)
    )


def _taint_toleration(signature: PodSignature, change: NodeChange) -> bool:
    before, after = change.before, change.after
    if after is None or not tolerates_all(signature.spec.tolerations, after.spec.taints):
        return False
    return before is None or not tolerates_all(signature.spec.tolerations, before.spec.taints)


def _node_affinity(signature: PodSignature, change: NodeChange) -> bool:
    before, after = change.before, change.after
    if after is None or not matches_required_node_affinity(signature, after):
        return False
    return before is None or not matches_required_node_affinity(signature, before)


def _node_resources_fit(signature: PodSignature, change: NodeChange) -> bool:
    before, after = change.before, change.after
    if after is None or (before is not None and before.status.allocatable == after.status.allocatable):
        return False
    allocatable = parse_resources(after.status.allocatable)
    requests = {name: amount for name, amount in signature.requests.items() if amount > 0}
    if any(amount > allocatable.get(name, 0) for name, amount in requests.items()):
        return False
    known = parse_resources(before.status.allocatable) if before is not None else {}
    return any(allocatable.get(name, 0) > known.get(name, 0) for name in requests)


def _pod_topology_spread(signature: PodSignature, change: NodeChange) -> bool:
    keys = [constraint.topology_key for constraint in _hard_constraints(signature)]
    before, after = change.before, change.after
    had_keys, has_keys = (
        node is not None and all(key in node.metadata.labels for key in keys) for node in (before, after)
    )
    if before is None or after is None:
        return had_keys or has_keys
    if had_keys != has_keys:
        return True
    moved = any(before.metadata.labels.get(key) != after.metadata.labels.get(key) for key in keys)
    return has_keys and (moved or before.spec.taints != after.spec.taints)


def _inter_pod_affinity(signature: PodSignature, change: NodeChange) -> bool:
    """Only the pod's own terms count: a new node itself does not retry a pod that others' anti-affinity keeps away."""
    before, after = change.before, change.after
    if after is None:
        return False
    labels = after.metadata.labels
    if before is None:
        return bool(signature.required_anti_affinity) or any(
            term.topology_key in labels for term in signature.required_affinity
        )
    known = before.metadata.labels

    def moved(term: PodAffinityTerm) -> bool:
        key = term.topology_key
        return key in known and key in labels and known[key] != labels[key]

    return any(
        moved(term) or (term.topology_key in labels and term.topology_key not in known)
        for term in signature.required_affinity
    ) or any(
        moved(term) or (term.topology_key in known and term.topology_key not in labels)
        for term in signature.required_anti_affinity
    )


def _node_labels(_signature: PodSignature, change: NodeChange) -> bool:
    before, after = change.before, change.after
    return after is not None and (before is None or before.metadata.labels != after.metadata.labels)


def _node_added(_signature: PodSignature, change: NodeChange) -> bool:
    return change.before is None


_NODE_HINTS: dict[str, Callable[[PodSignature, NodeChange], bool]] = {
    NODE_UNSCHEDULABLE: _node_unschedulable,
    TAINT_TOLERATION: _taint_toleration,
    NODE_AFFINITY: _node_affinity,
    NODE_PORTS: _node_added,
    NODE_RESOURCES_FIT: _node_resources_fit,
    POD_TOPOLOGY_SPREAD: _pod_topology_spread,
    INTER_POD_AFFINITY: _inter_pod_affinity,
    VOLUME_BINDING: _node_labels,
}


def after_pod_added(pod: PodSignature, namespaces: Mapping[str, Mapping[str, str]]) -> IsWorthRequeuing:
    """Who is retried when a pod is bound: those whose spread or affinity terms count it."""

    def is_worth_requeuing(signature: PodSignature, rejected_by: frozenset[str]) -> bool:
        if POD_TOPOLOGY_SPREAD in rejected_by and _is_spread_with(signature, pod):
            return True
        return INTER_POD_AFFINITY in rejected_by and _selects(signature.required_affinity, signature, pod, namespaces)

    return is_worth_requeuing


def after_pod_removed(
    pod: PodSignature, namespaces: Mapping[str, Mapping[str, str]], *, priority: int | None = None
) -> IsWorthRequeuing:
    """Who is retried when a pod leaves its node, or its nomination (then only pods of at most that priority)."""

    def is_worth_requeuing(signature: PodSignature, rejected_by: frozenset[str]) -> bool:
        if priority is not None and signature.priority > priority:
            return False
        by_volumes = not rejected_by.isdisjoint({NODE_VOLUME_LIMITS, VOLUME_RESTRICTIONS})
        if NODE_RESOURCES_FIT in rejected_by or (by_volumes and pod.claims):
            return True
        if NODE_PORTS in rejected_by and any(ports_conflict(a, b) for a in pod.ports for b in signature.ports):
            return True
        if POD_TOPOLOGY_SPREAD in rejected_by and _is_spread_with(signature, pod):
            return True
        return INTER_POD_AFFINITY in rejected_by and (
            _selects(signature.required_anti_affinity, signature, pod, namespaces)
            or _selects(pod.required_anti_affinity, pod, signature, namespaces)
        )

    return is_worth_requeuing


def after_pod_updated(_signature: PodSignature, rejected_by: frozenset[str]) -> bool:
    """Who is retried when a bound pod's labels or requests changed; kube-scheduler also compares which ones."""
    return bool(rejected_by & {NODE_RESOURCES_FIT, POD_TOPOLOGY_SPREAD, INTER_POD_AFFINITY})


def after_volume_change(_signature: PodSignature, rejected_by: frozenset[str]) -> bool:
    """Who is retried when a claim, volume, storage class or CSINode changed."""
    return bool(rejected_by & _VOLUME_PLUGINS)


def after_device_change(_signature: PodSignature, rejected_by: frozenset[str]) -> bool:
    """Who is retried when a DeviceClass or ResourceSlice changed."""
    return NODE_RESOURCES_FIT in rejected_by


def _hard_constraints(signature: PodSignature) -> list[TopologySpreadConstraint]:
    constraints = signature.spec.topology_spread_constraints
    return [constraint for constraint in constraints if constraint.when_unsatisfiable == "DoNotSchedule"]


def _is_spread_with(signature: PodSignature, pod: PodSignature) -> bool:
    if pod.namespace != signature.namespace:
        return False
    namespace = frozenset([signature.namespace])
    return any(
        PodSelector(namespace, with_own_labels(c.label_selector, signature, c.match_label_keys, "In")).selects(
            pod.namespace, pod.labels
        )
        for c in _hard_constraints(signature)
    )


def _selects(
    terms: list[PodAffinityTerm],
    owner: PodSignature,
    pod: PodSignature,
    namespaces: Mapping[str, Mapping[str, str]],
) -> bool:
    """Whether there are terms and all of them select the pod."""
    return bool(terms) and all(
        affinity_selector(term, owner, namespaces).selects(pod.namespace, pod.labels) for term in terms
    )
