"""Why no existing node can take a pod: the obstacles with the number of nodes, and the nearest node."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cli.explain.explanation import Check, Section
from cli.explain.pod_constraints import requested
from shared.api.quantity import PODS, format_quantity
from shared.api.taints import REPELLING, format_taint, untolerated
from shared.base.plurals import plural
from shared.base.struct import Struct
from shared.scheduling.rules.node_affinity import required_alternatives
from shared.scheduling.rules.requirements import RequirementError
from shared.scheduling.state.state_nodes import build_state_nodes

if TYPE_CHECKING:
    from cli.cluster.observed_cluster import ObservedCluster
    from shared.api.kubernetes import Pod
    from shared.api.quantity import Resources
    from shared.cloud_provider import ResolvedNodePools
    from shared.scheduling.rules.requirements import Requirements
    from shared.scheduling.state.state_nodes import StateNode

_MAX_OBSTACLES = 6


class ExistingNodesResult(Struct, kw_only=True):
    """``summary`` is one clause; ``nearest`` is a line about the node with one obstacle, if there is one."""

    summary: str
    nearest: tuple[str, ...]
    sections: tuple[Section, ...]


class _Obstacle(Struct):
    """``name`` is the same for all nodes that have it. ``distance`` is the missing share of a resource, else 1."""

    name: str
    distance: float = 1.0
    detail: str = ""


def check_existing_nodes(observed: ObservedCluster, resolved_pools: ResolvedNodePools, pod: Pod) -> ExistingNodesResult:
    """The obstacles on all nodes, and on NodeClaims whose node has not joined yet."""
    snapshot = observed.snapshot
    nodes = build_state_nodes(snapshot, resolved_pools.instance_types, frozenset()).nodes
    if not nodes:
        return ExistingNodesResult(summary="there is no node", nearest=(), sections=())
    amounts = {**requested(pod), PODS: 1}
    try:
        alternatives = required_alternatives(pod.spec)
    except RequirementError:
        alternatives = ()
    obstacles_by_node = [(n, _obstacles(n, pod, amounts, alternatives)) for n in nodes]
    counts = Counter(o.name for _, obstacles in obstacles_by_node for o in obstacles)
    node_count = plural(len(nodes), "node")
    checks = [
        Check(name=name, ok=False, detail=f"on {count} of {node_count}")
        for name, count in counts.most_common(_MAX_OBSTACLES)
    ]
    without_obstacle = sum(not obstacles for _, obstacles in obstacles_by_node)
    if without_obstacle:
        detail = f"on {plural(without_obstacle, 'node')} with enough resources"
        checks.append(Check(name="constraints on other pods or volumes", ok=False, detail=detail))
    return ExistingNodesResult(
        summary=f"none of {node_count} can take it",
        nearest=_nearest(obstacles_by_node),
        sections=(Section(title=f"Existing nodes · {len(nodes)}", checks=tuple(checks)),),
    )


def _nearest(obstacles_by_node: list[tuple[StateNode, list[_Obstacle]]]) -> tuple[str, ...]:
    """A line about the nearest node, if it has only one obstacle."""
    node, obstacles = min(
        obstacles_by_node, key=lambda item: (len(item[1]), sum(o.distance for o in item[1]), item[0].name)
    )
    if len(obstacles) != 1:
        return ()
    return (f"nearest node {node.name}: {obstacles[0].detail or obstacles[0].name}",)


def _obstacles(
    node: StateNode, pod: Pod, amounts: Resources, alternatives: tuple[Requirements, ...]
) -> list[_Obstacle]:
    obstacles = []
    taint = untolerated(pod.spec.tolerations, node.taints, effects=REPELLING)
    if taint is not None:
        obstacles.append(_Obstacle(f"taint {format_taint(taint)} is not tolerated"))
    mismatches = [
        [key for key, allowed in sorted(a.items()) if not allowed.has(node.labels.get(key))] for a in alternatives
    ]
    obstacles += [_Obstacle(f"label {key} doesn't match") for key in min(mismatches, key=len, default=[])]
    for name, amount in sorted(amounts.items()):
        available = max(0, node.available.get(name, 0))
        if amount > node.available.get(name, 0):
            detail = f"{name} {format_quantity(name, amount)} requested, {format_quantity(name, available)} available"
            obstacles.append(_Obstacle(f"insufficient {name}", (amount - available) / amount, detail))
    return obstacles
