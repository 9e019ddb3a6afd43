"""Which nodes new pods should avoid: those whose pods would fit on the other nodes of their NodePool and zone.

kube-scheduler prefers the least allocated node, so what comes and goes keeps all nodes half full. As Cluster Autoscaler
does for unneeded nodes, Tenon puts soft taints (effect PreferNoSchedule) on the nodes that are used least: new pods
fill the others first, and tainted nodes become empty by themselves, without moving a pod. kube-scheduler counts such
taints, so there are three ranks: nodes that could go have two, and where there are any, the less used half of the
others has one. A preference keeps no pod pending, and scheduling decisions ignore the taints. As they outweigh
preferred topology spread, each zone has nodes without one. bench/month measures their effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.api import labels as names
from shared.api.duration import DurationError, parse_duration
from shared.api.meta import is_true
from shared.api.taints import (
    DELETION_CANDIDATE,
    SOFT_TAINTS,
    same_taint,
    with_taint,
    without_soft_taints,
    without_taint,
)
from shared.base.struct import with_fields
from shared.disruption.candidate_matrix import build_candidate_matrix
from shared.disruption.candidates import do_not_disrupt_blocker, dynamic_candidates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from shared.api.kubernetes import Node, Taint
    from shared.disruption.candidates import Candidate
    from shared.disruption.disruption_state import DisruptionState

    Bools = NDArray[np.bool_]
    Ints = NDArray[np.int64]
    Numbers = NDArray[np.int64] | NDArray[np.float64]

ANNOTATION = "tenon.sh/soft-taints"
"""Annotation on a NodePool: "false" leaves its nodes without soft taints."""
FILL = 0.9
"""The share of the other nodes' free capacity that the pods of tainted nodes may take: pods don't split."""
HYSTERESIS = 0.05
"""For each soft taint a node counts as used less by this share of its capacity, so equal nodes don't take turns."""
_TINY = 1e-9


def taint_counts(requested: Numbers, free: Numbers, *, may_go: Bools, current: Ints) -> Ints:
    """How many of the soft taints each of these nodes of one NodePool and zone should have; ``current`` is what it has.

    ``requested`` and ``free`` are (nodes, resources): what the pods that would move request of each node, and what it
    has available. The nodes that may go are taken in order of their utilisation, while the sum of their pods' requests
    fits on the others; one node is left. They get both taints. It compares sums: a pod that fits nowhere else stays, as
    any does. If there are such nodes, the less used half of the others gets one taint.
    """
    free = np.maximum(free, 0)
    utilisation = (requested / np.maximum(requested + free, _TINY)).max(1, initial=0.0) - HYSTERESIS * current
    order = np.argsort(utilisation, kind="stable").tolist()
    could_go: list[int] = []
    left, moved = free.sum(0).astype(np.float64), np.zeros(free.shape[1])
    for i in [i for i in order if may_go[i]][: len(requested) - 1]:
        left, moved = left - free[i], moved + requested[i]
        if (moved > FILL * left).any():
            break
        could_go.append(i)
    counts = np.zeros(len(requested), np.int64)
    if could_go:
        stay = sorted(set(order).difference(could_go), key=lambda i: (may_go[i], -utilisation[i]))
        counts[stay[-(-len(stay) // 2) :]] = 1
        counts[could_go] = len(SOFT_TAINTS)
    return counts


def wanted_taints(state: DisruptionState) -> Mapping[str, int]:
    """How many soft taints nodes should have, by name; those without any are left out."""
    nodes = [c for c in dynamic_candidates(state) if _is_steered(c)]
    matrix = build_candidate_matrix(state, nodes, [0.0] * len(nodes))
    groups: dict[tuple[str, str], list[int]] = {}
    for i, candidate in enumerate(nodes):
        if matrix.node_rows[i] >= 0:  # not one that takes no pods any more, as an interruption takes it
            zone = candidate.node.metadata.labels.get(names.ZONE, "")
            groups.setdefault((candidate.pool.name, zone), []).append(i)
    requested = np.array([requests.sum(0) for requests in matrix.pod_requests])
    wanted: dict[str, int] = {}
    for rows in groups.values():
        counts = taint_counts(
            requested[rows],
            matrix.free[matrix.node_rows[rows]],
            may_go=np.array([_may_go(state, nodes[i]) for i in rows], np.bool_),
            current=np.array([soft_taint_count(nodes[i].node) for i in rows], np.int64),
        )
        wanted |= {nodes[i].name: count for i, count in zip(rows, counts.tolist(), strict=True) if count}
    return wanted


def changed_nodes(state: DisruptionState) -> tuple[tuple[Node, int], ...]:
    """The nodes whose soft taints have to be changed, and to how many; not those that are being disrupted.

    Those that could go, or no longer could, come first: a sweep doesn't change all of many.
    """
    wanted = wanted_taints(state)
    counts = (
        (n, wanted.get(n.metadata.name, 0))
        for n in state.snapshot.nodes
        if n.metadata.name not in state.disrupting_nodes
    )
    changed = [(n, count) for n, count in counts if _with_count(n.spec.taints, count) != n.spec.taints]
    return tuple(sorted(changed, key=lambda change: (could_go(change[0]) == (change[1] > 1), change[0].metadata.name)))


def soft_taint_count(node: Node) -> int:
    """How many soft taints the node has."""
    return len(node.spec.taints) - len(without_soft_taints(node.spec.taints))


def could_go(node: Node) -> bool:
    """Whether the node's taints say that its pods would fit on others."""
    return any(same_taint(taint, DELETION_CANDIDATE) for taint in node.spec.taints)


def with_soft_taints(node: Node, count: int) -> Node:
    """The node with the first ``count`` soft taints, and no other one."""
    return with_fields(node, spec=with_fields(node.spec, taints=_with_count(node.spec.taints, count)))


def _with_count(taints: list[Taint], count: int) -> list[Taint]:
    for soft in SOFT_TAINTS[count:]:
        taints = without_taint(taints, soft.key)
    for soft in SOFT_TAINTS[:count]:
        taints = with_taint(taints, soft)
    return taints


def _is_steered(candidate: Candidate) -> bool:
    """Whether the node takes pods, and its NodePool doesn't opt out."""
    node = candidate.node
    takes_pods = not node.spec.unschedulable and is_true(node.status.conditions, "Ready")
    return takes_pods and candidate.pool.metadata.annotations.get(ANNOTATION) != "false"


def _may_go(state: DisruptionState, candidate: Candidate) -> bool:
    """Whether the node is deleted once it is empty, and isn't about to get pods."""
    try:
        never = parse_duration(candidate.pool.spec.disruption.consolidate_after) is None
    except DurationError:
        return False
    is_nominated = not state.nominated.isdisjoint({candidate.name, candidate.claim.name})
    return not (never or is_nominated or do_not_disrupt_blocker(state, candidate))
