"""The checks of one pod against one node that no other node matters for, in kube-scheduler's order and words.

Source: ``pkg/scheduler/framework/plugins`` (nodeunschedulable, tainttoleration, nodeaffinity, nodeports,
noderesources). The first check that fails gives the reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes.scheduler.pod_signature import clash
from shared.api.kubernetes import Taint
from shared.api.labels import UNSCHEDULABLE_TAINT
from shared.api.selectors import SelectorError, matches_node
from shared.api.taints import tolerates, untolerated

if TYPE_CHECKING:
    from local.kubernetes.scheduler.node_info import Place
    from local.kubernetes.scheduler.pod_signature import Shape

UNSCHEDULABLE = "node(s) were unschedulable"
AFFINITY = "node(s) didn't match Pod's node affinity/selector"
PORTS = "node(s) didn't have free ports for the requested pod ports"
TOO_MANY_PODS = "Too many pods"
NOT_READY = "node(s) were not ready"

_CORDON = Taint(key=UNSCHEDULABLE_TAINT, effect="NoSchedule")
_FIXED = (UNSCHEDULABLE, AFFINITY, "node(s) had untolerated taint", "node(s) had volume node affinity conflict")


def refusals(shape: Shape, place: Place) -> tuple[str, ...]:
    """Why the pod can't go there for reasons of this node alone; empty: it can."""
    spec = shape.spec
    if place.node.spec.unschedulable and not tolerates(spec.tolerations, _CORDON):
        return (UNSCHEDULABLE,)
    taint = untolerated(spec.tolerations, place.node.spec.taints)
    if taint is not None:
        return (f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}",)
    if not chosen_by_pod(shape, place):
        return (AFFINITY,)
    if any(count and clash(taken, wanted) for taken, count in place.ports.items() for wanted in shape.ports):
        return (PORTS,)
    return _insufficient(shape, place)


def chosen_by_pod(shape: Shape, place: Place) -> bool:
    """Whether nodeSelector and required node affinity allow the node; an expression nobody can read allows none."""
    labels = place.labels
    if any(labels.get(key) != value for key, value in shape.spec.node_selector.items()):
        return False
    affinity = shape.affinity.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    try:
        return matches_node(required, labels, name=place.name)
    except SelectorError:
        return False


def _insufficient(shape: Shape, place: Place) -> tuple[str, ...]:
    short: list[str] = []
    for name, amount in shape.requests.items():
        if amount > 0 and place.requested[name] + amount > place.allocatable.get(name, 0):
            short.append(TOO_MANY_PODS if name == "pods" else f"Insufficient {name}")
    return tuple(short)


def is_final(reason: str) -> bool:
    """Whether removing pods from the node could not help (UnschedulableAndUnresolvable): what preemption would ask."""
    return reason.startswith(_FIXED) or reason.endswith("(missing required label)")
