"""Nomination of planned pods: which nodes may take pods now, and which pods are nominated for them (or no longer).

Nodes that were launched for pending pods join with the startup taint ``tenon.sh/pods-not-nominated``. When such a node
is otherwise initialized, its planned pods that are still pending are nominated for it (``status.nominatedNodeName``),
and the taint is removed. kube-scheduler then binds them there, instead of filling the nodes in its own order. A failed
try of kube-scheduler clears a nomination, so it is written again while the node's nomination window is open; after the
window it is cleared, so that no pod waits for a node that doesn't take it.

A node whose pods are spread over domains with nodes that are still coming, or prefer to be apart from pods that such
nodes are planned for, stays closed for a few seconds, because kube-scheduler would fill what is there.

Pure: objects and the time in, writes to make out.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import field

from functions.lifecycle.claims.initialization import RESOURCE_NOT_REGISTERED, initialization_blocker
from functions.lifecycle.claims.registration import registered_node
from shared.api import labels as names
from shared.api.meta import condition
from shared.api.pods import is_pending
from shared.api.taints import without_taint
from shared.base.struct import Struct, with_fields
from shared.scheduling.nominations import planned_pods

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from shared.api.kubernetes import Node, Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.scheduling.nominations.nomination_order import NominationOrder
    from shared.snapshot import Snapshot

MAX_WAIT = timedelta(seconds=15)
"""How long after it became Ready a node waits at most for others."""
_MAX_ATTEMPTS = 5
"""How often the nominations are computed without the nodes that have to wait."""


class PodNominations(Struct, kw_only=True):
    """The writes to make: nominations by node, nominations to clear, and nodes (by name) to remove the taint from.

    ``waiting`` are nodes that could take pods, but wait for others planned for such pods. ``linked`` are groups of
    nodes that have to take pods together, because their pods have rules about each other; ``interchangeable`` groups of
    nodes that may do so, because their pods are alike.
    """

    by_node: Mapping[str, Sequence[Pod]] = field(default_factory=dict)
    cleared: Sequence[Pod] = ()
    released: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    linked: Sequence[frozenset[str]] = ()
    interchangeable: Sequence[frozenset[str]] = ()


def released_node(node: Node) -> Node:
    """The node without the taint that keeps pods away until the planned ones are nominated."""
    taints = without_taint(node.spec.taints, names.PODS_NOT_NOMINATED_TAINT)
    return (
        node if len(taints) == len(node.spec.taints) else with_fields(node, spec=with_fields(node.spec, taints=taints))
    )


def nominate_pods(snapshot: Snapshot, with_node: Iterable[tuple[NodeClaim, Node]], *, now: datetime) -> PodNominations:
    """The nominations for these NodeClaims' nodes; NodeClaims that are being deleted are not among them."""
    pairs = [(claim, registered_node(node, claim)) for claim, node in with_node]
    closed = {node.metadata.name: node for claim, node in pairs if _is_ready_but_tainted(claim, node)}
    waiting_for_devices = _waiting_for_devices(pairs)
    over = planned_pods.closed_windows(snapshot)
    candidates = frozenset(closed) | {node.metadata.name for claim, node in pairs if _is_open(claim, node, over, now)}
    pending = {pod.key: pod for pod in snapshot.pods if is_pending(pod)}
    cleared = _expired(snapshot, pending, over)
    planned = _planned(snapshot, pending, pairs, over, {pod.key for pod in cleared}) if candidates else {}
    if candidates.isdisjoint(planned.values()):
        return PodNominations(cleared=cleared, released=frozenset(closed) | waiting_for_devices)
    patient = {name for name, node in closed.items() if not _has_waited(node, now)}
    order, waiting = _order(snapshot, planned, pending, candidates, patient)
    cleared = [pod for pod in cleared if pod.key not in order.nodes]
    return PodNominations(
        by_node=_unwritten(order, pending),
        cleared=[*cleared, *_lost(snapshot, planned, pending, candidates, order)],
        released=(frozenset(closed) - waiting) | waiting_for_devices,
        waiting=waiting,
        linked=order.linked,
        interchangeable=order.interchangeable,
    )


def opened_together(
    pairs: Iterable[tuple[NodeClaim, Node]], nominations: PodNominations, size: int
) -> Iterator[list[tuple[NodeClaim, Node]]]:
    """The pairs in groups that are written one after the other: nominations first, then the nodes.

    A nomination is lost if kube-scheduler tries the pod before the node is open, which it does with each change of
    any node's taints. Therefore few pods are nominated before their node is opened: those of one node, of nodes whose
    pods have rules about each other, or, up to ``size`` of them, those of nodes whose pods may take each other's room.
    """
    group_of = {name: group for group in (*nominations.interchangeable, *nominations.linked) for name in group}
    groups: dict[frozenset[str], list[tuple[NodeClaim, Node]]] = {}
    not_nominated: list[tuple[NodeClaim, Node]] = []
    for pair in pairs:
        name = pair[1].metadata.name
        if name in nominations.by_node:
            groups.setdefault(group_of.get(name, frozenset([name])), []).append(pair)
        else:
            not_nominated.append(pair)
    for names_in_group, group in groups.items():
        if names_in_group in nominations.linked:
            yield group
        else:
            pods = max(len(nominations.by_node[node.metadata.name]) for _, node in group)
            yield from _batches(group, size // pods or 1)
    yield from _batches(not_nominated, size)


def _batches(pairs: list[tuple[NodeClaim, Node]], size: int) -> Iterator[list[tuple[NodeClaim, Node]]]:
    for start in range(0, len(pairs), size):
        yield pairs[start : start + size]


def _lost(
    snapshot: Snapshot,
    planned: Mapping[str, str],
    pending: Mapping[str, Pod],
    candidates: frozenset[str],
    order: NominationOrder,
) -> list[Pod]:
    """Planned pods that are nominated for an open node which can't take them any more: they need another at once.

    Where a pod is terminating, its room may be meant for the nominated pod.
    """
    preempted = {pod.spec.node_name for pod in snapshot.pods if pod.metadata.deletion_timestamp is not None}
    return [
        pending[key]
        for key in planned
        if key not in order.nodes
        and pending[key].status.nominated_node_name in candidates
        and pending[key].status.nominated_node_name not in preempted
    ]


def _unwritten(order: NominationOrder, pending: Mapping[str, Pod]) -> dict[str, list[Pod]]:
    """By node, the pods whose status doesn't name it yet."""
    by_node: dict[str, list[Pod]] = {}
    for key, node_name in order.nodes.items():
        if pending[key].status.nominated_node_name != node_name:
            by_node.setdefault(node_name, []).append(pending[key])
    return by_node


def _order(
    snapshot: Snapshot,
    planned: Mapping[str, str],
    pending: Mapping[str, Pod],
    candidates: frozenset[str],
    patient: set[str],
) -> tuple[NominationOrder, frozenset[str]]:
    """The nominations for these nodes without those that wait, and the names of the latter.

    A node waits while a pod planned for it shouldn't be bound before another node takes pods.
    """
    # Imported here: most reconciles nominate no pods, and numpy is a large part of a cold start.
    from shared.scheduling.nominations.nomination_order import order_nominations  # noqa: PLC0415

    pods = {key: pod for key, pod in pending.items() if key in planned or pod.status.nominated_node_name}
    waiting: frozenset[str] = frozenset()
    order = order_nominations(snapshot, planned, pods, candidates)
    for _ in range(_MAX_ATTEMPTS):
        more = {planned[key] for key, missing in order.waiting.items() if missing} & patient - waiting
        if not more:
            break
        waiting |= more
        order = order_nominations(snapshot, planned, pods, candidates - waiting)
    return order, waiting


def _planned(
    snapshot: Snapshot,
    pending: Mapping[str, Pod],
    pairs: Sequence[tuple[NodeClaim, Node]],
    over: frozenset[str],
    expired: set[str],
) -> dict[str, str]:
    """By pod: the node that it is planned for, or its NodeClaim while that has none. The latest plan counts."""
    node_of = {claim.name: node.metadata.name for claim, node in pairs}
    own = {
        node.metadata.name
        for claim, node in pairs
        if planned_pods.is_nominated_in_status(claim) and claim.name not in over
    }
    foreign = {node.metadata.name for node in snapshot.nodes} - own
    planned: dict[str, str] = {}
    for claim in sorted(snapshot.node_claims, key=_plan_time, reverse=True):
        if claim.name in over:
            continue
        for key in planned_pods.planned_pods(claim):
            pod = pending.get(key)
            if pod is None or key in planned or not planned_pods.is_planned(pod, claim):
                continue
            # A nomination for another node is kube-scheduler's: the pod gets what it preempts there.
            if key in expired or pod.status.nominated_node_name not in foreign:
                planned[key] = node_of.get(claim.name, claim.name)
    return planned


def _expired(snapshot: Snapshot, pending: Mapping[str, Pod], over: frozenset[str]) -> list[Pod]:
    """Pods whose nomination helps no more: their node doesn't exist, or its nomination window is over."""
    nominated = [pod for pod in pending.values() if pod.status.nominated_node_name]
    if not nominated:
        return []
    node_names = {node.metadata.name for node in snapshot.nodes}
    expired = planned_pods.expired_nominations(nominated, snapshot.node_claims, over)
    return [p for p in nominated if p.status.nominated_node_name not in node_names or p.key in expired]


def _is_ready_but_tainted(claim: NodeClaim, node: Node) -> bool:
    """Whether nothing but the taint keeps pods away from the node."""
    released = released_node(node)
    return released is not node and initialization_blocker(released, claim) is None


def _waiting_for_devices(pairs: Iterable[tuple[NodeClaim, Node]]) -> frozenset[str]:
    """The names of the tainted nodes that wait for their device plugins.

    The device plugin may be a DaemonSet's pod, which the taint would keep away forever. The planned pods are nominated
    when the node is initialized.
    """
    tainted = (pair for pair in pairs if released_node(pair[1]) is not pair[1])
    return frozenset(node.metadata.name for claim, node in tainted if waits_for_devices(claim, node))


def waits_for_devices(claim: NodeClaim, node: Node) -> bool:
    """Whether the node lacks nothing but extended resources that its planned pods requested."""
    blocker = initialization_blocker(released_node(node), claim)
    return blocker is not None and blocker[0] == RESOURCE_NOT_REGISTERED


def _is_open(claim: NodeClaim, node: Node, over: frozenset[str], now: datetime) -> bool:
    """Whether the node takes pods, and its nomination window isn't over."""
    return (
        planned_pods.is_nominated_in_status(claim)
        and planned_pods.initialized_for(claim, now) is not None
        and claim.name not in over
        and not any(taint.key == names.DISRUPTED_TAINT for taint in node.spec.taints)
    )


def _has_waited(node: Node, now: datetime) -> bool:
    ready = condition(node.status.conditions, "Ready")
    since = ready.last_transition_time if ready is not None else None
    return since is None or now - since >= MAX_WAIT


def _plan_time(claim: NodeClaim) -> tuple[float, str]:
    planned = planned_pods.planned_at(claim)
    return (planned.timestamp() if planned is not None else 0.0, claim.name)
