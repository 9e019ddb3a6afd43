"""Filter plugins for which only the node itself matters, in kube-scheduler's order and with its messages.

Source: ``pkg/scheduler/framework/plugins`` (nodeunschedulable, tainttoleration, nodeaffinity, nodeports,
noderesources, dynamicresources). The first plugin that rejects the node gives the reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes.scheduler.pod_signature import ports_conflict
from shared.api.kubernetes import Taint
from shared.api.labels import UNSCHEDULABLE_TAINT
from shared.api.selectors import SelectorError, matches_node
from shared.api.taints import tolerates, tolerates_all

if TYPE_CHECKING:
    from local.kubernetes.scheduler.node_info import NodeInfo
    from local.kubernetes.scheduler.pod_signature import PodSignature
    from shared.api.kubernetes import Node

UNSCHEDULABLE = "node(s) were unschedulable"
UNTOLERATED_TAINT = "node(s) had untolerated taint(s)"
NODE_AFFINITY = "node(s) didn't match Pod's node affinity/selector"
NOT_NAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
"""Not one of the nodes that the pod's affinity names, which are all that is looked at."""
NODE_PORTS = "node(s) didn't have free ports for the requested pod ports"
TOO_MANY_PODS = "Too many pods"
UNALLOCATED_CLAIMS = "cannot allocate all claims"
"""Of a pod with resource claims: no driver publishes devices here."""

_UNSCHEDULABLE_NODE_TAINT = Taint(key=UNSCHEDULABLE_TAINT, effect="NoSchedule")
_UNRESOLVABLE = (
    UNSCHEDULABLE,
    NODE_AFFINITY,
    NOT_NAMED,
    UNTOLERATED_TAINT,
    UNALLOCATED_CLAIMS,
    "node(s) didn't match PersistentVolume's node affinity",
    "node(s) didn't find available persistent volumes to bind",
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
)


def filter_node(signature: PodSignature, node_info: NodeInfo) -> tuple[str, ...]:
    """Why the node can't run the pod, for reasons of this node alone; empty: it can."""
    spec = signature.spec
    if node_info.node.spec.unschedulable and not tolerates(spec.tolerations, _UNSCHEDULABLE_NODE_TAINT):
        return (UNSCHEDULABLE,)
    if not tolerates_all(spec.tolerations, node_info.node.spec.taints):
        return (UNTOLERATED_TAINT,)
    if not matches_node_affinity(signature, node_info):
        return (NODE_AFFINITY,)
    used_ports = (port for port, count in node_info.used_ports.items() if count)
    if any(ports_conflict(used, port) for used in used_ports for port in signature.ports):
        return (NODE_PORTS,)
    insufficient = _insufficient_resources(signature, node_info)
    return (UNALLOCATED_CLAIMS,) if spec.resource_claims and not insufficient else insufficient


def matches_node_affinity(signature: PodSignature, node_info: NodeInfo) -> bool:
    """Whether nodeSelector and required node affinity match the node; an invalid expression matches none."""
    return matches_required_node_affinity(signature, node_info.node)


def matches_required_node_affinity(signature: PodSignature, node: Node) -> bool:
    """The same for a node's state alone."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in signature.spec.node_selector.items()):
        return False
    affinity = signature.affinity.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    try:
        return matches_node(required, labels, name=node.metadata.name)
    except SelectorError:
        return False


def _insufficient_resources(signature: PodSignature, node_info: NodeInfo) -> tuple[str, ...]:
    insufficient: list[str] = []
    for name, amount in signature.requests.items():
        if amount > 0 and node_info.requested[name] + amount > node_info.allocatable.get(name, 0):
            insufficient.append(TOO_MANY_PODS if name == "pods" else f"Insufficient {name}")
    return tuple(insufficient)


def is_unresolvable(reason: str) -> bool:
    """Whether preempting pods of the node could not help (UnschedulableAndUnresolvable)."""
    return reason.startswith(_UNRESOLVABLE) or reason.endswith("(missing required label)")
