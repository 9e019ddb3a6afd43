"""Which nodes new pods should avoid: those whose pods would fit on the other nodes of their NodePool and zone.

kube-scheduler prefers the least allocated node, so what comes and goes keeps all nodes half full. As Cluster Autoscaler
does for unneeded nodes, Tenon puts a soft taint (effect PreferNoSchedule) on the nodes that are used least: new pods
fill the others first, and tainted nodes become empty by themselves, without moving a pod. A preference keeps no pod
pending, and scheduling decisions ignore the taint. As it outweighs preferred topology spread, each zone has nodes
without it. bench/month measures its effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.api import labels as names
from shared.api.duration import DurationError, parse_duration
from shared.api.meta import is_true
from shared.api.taints import DELETION_CANDIDATE, same_taint, with_taint, without_taint
from shared.base.struct import with_fields
from shared.disruption.candidate_matrix import build_candidate_matrix
from shared.disruption.candidates import do_not_disrupt_blocker, dynamic_candidates

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from shared.api.kubernetes import Node
    from shared.disruption.candidates import Candidate
    from shared.disruption.disruption_state import DisruptionState

    Bools = NDArray[np.bool_]
    Numbers = NDArray[np.int64] | NDArray[np.float64]

SOFT_TAINTS = "tenon.sh/soft-taints"
"""Annotation on a NodePool: "false" leaves its nodes without soft taints."""
FILL = 0.9
"""The share of the other nodes' free capacity that the pods of tainted nodes may take: pods don't split."""
HYSTERESIS = 0.05
"""A tainted node counts as used less by this share of its capacity, so that equal nodes don't take turns."""
_TINY = 1e-9


def avoided(requested: Numbers, free: Numbers, *, may_go: Bools, is_tainted: Bools) -> Bools:
    """Which of these nodes of one NodePool and zone new pods should avoid.

    ``requested`` and ``free`` are (nodes, resources): what the pods that would move request of each node, and what it
    has available. The nodes that may go are taken in order of their utilisation, while the sum of their pods' requests
    fits on the others; one node is left. It compares sums: a pod that fits nowhere else stays, as any does.
    """
    free = np.maximum(free, 0)
    utilisation = (requested / np.maximum(requested + free, _TINY)).max(1, initial=0.0) - HYSTERESIS * is_tainted
    chosen = np.zeros(len(requested), np.bool_)
    left, moved = free.sum(0).astype(np.float64), np.zeros(free.shape[1])
    candidates = [i for i in np.argsort(utilisation, kind="stable").tolist() if may_go[i]]
    for i in candidates[: len(requested) - 1]:
        left, moved = left - free[i], moved + requested[i]
        if (moved > FILL * left).any():
            break
        chosen[i] = True
    return chosen


def avoided_nodes(state: DisruptionState) -> frozenset[str]:
    """The names of the nodes that should have the soft taint."""
    nodes = [c for c in dynamic_candidates(state) if _is_steered(c)]
    matrix = build_candidate_matrix(state, nodes, [0.0] * len(nodes))
    groups: dict[tuple[str, str], list[int]] = {}
    for i, candidate in enumerate(nodes):
        if matrix.node_rows[i] >= 0:  # not one that takes no pods any more, as an interruption takes it
            zone = candidate.node.metadata.labels.get(names.ZONE, "")
            groups.setdefault((candidate.pool.name, zone), []).append(i)
    requested = np.array([requests.sum(0) for requests in matrix.pod_requests])
    chosen: set[str] = set()
    for rows in groups.values():
        is_avoided = avoided(
            requested[rows],
            matrix.free[matrix.node_rows[rows]],
            may_go=np.array([_may_go(state, nodes[i]) for i in rows], np.bool_),
            is_tainted=np.array([has_soft_taint(nodes[i].node) for i in rows], np.bool_),
        )
        chosen.update(nodes[i].name for i, is_chosen in zip(rows, is_avoided.tolist(), strict=True) if is_chosen)
    return frozenset(chosen)


def changed_nodes(state: DisruptionState) -> tuple[Node, ...]:
    """The nodes whose soft taint has to be added or removed, sorted by name; not those that are being disrupted."""
    wanted = avoided_nodes(state)
    changed = (
        n
        for n in state.snapshot.nodes
        if has_soft_taint(n) != (n.metadata.name in wanted) and n.metadata.name not in state.disrupting_nodes
    )
    return tuple(sorted(changed, key=lambda n: n.metadata.name))


def has_soft_taint(node: Node) -> bool:
    """Whether new pods should avoid the node."""
    return any(same_taint(taint, DELETION_CANDIDATE) for taint in node.spec.taints)


def with_soft_taint(node: Node) -> Node:
    """The node with the taint."""
    return with_fields(node, spec=with_fields(node.spec, taints=with_taint(node.spec.taints, DELETION_CANDIDATE)))


def without_soft_taint(node: Node) -> Node:
    """The node without the taint."""
    return with_fields(
        node, spec=with_fields(node.spec, taints=without_taint(node.spec.taints, DELETION_CANDIDATE.key))
    )


def _is_steered(candidate: Candidate) -> bool:
    """Whether the node takes pods, and its NodePool doesn't opt out."""
    node = candidate.node
    takes_pods = not node.spec.unschedulable and is_true(node.status.conditions, "Ready")
    return takes_pods and candidate.pool.metadata.annotations.get(SOFT_TAINTS) != "false"


def _may_go(state: DisruptionState, candidate: Candidate) -> bool:
    """Whether the node is deleted once it is empty, and isn't about to get pods."""
    try:
        never = parse_duration(candidate.pool.spec.disruption.consolidate_after) is None
    except DurationError:
        return False
    is_nominated = not state.nominated.isdisjoint({candidate.name, candidate.claim.name})
    return not (never or is_nominated or do_not_disrupt_blocker(state, candidate))
