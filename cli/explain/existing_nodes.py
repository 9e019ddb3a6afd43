"""Why no node that is there takes a pod: what each lacks, counted, and the one that lacks least."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cli import terminal
from cli.explain import pod_constraints
from cli.explain.explanation import Check, Section
from shared.api.quantity import PODS, format_quantity
from shared.api.taints import REPELLING, format_taint, untolerated
from shared.scheduling.rules.node_affinity import required_alternatives
from shared.scheduling.rules.requirements import RequirementError
from shared.scheduling.state.daemonsets import daemon_set_pods
from shared.scheduling.state.state_nodes import build_cluster_state

if TYPE_CHECKING:
    from cli.cluster.observed_cluster import ObservedCluster
    from shared.api.kubernetes import Pod
    from shared.api.quantity import Resources
    from shared.launch.resolved_node_pools import ResolvedNodePools
    from shared.scheduling.rules.requirements import Requirements
    from shared.scheduling.state.state_nodes import StateNode

_SHOWN = 6


@dataclass(frozen=True, kw_only=True)
class Rooms:
    """``summary`` in one clause; ``nearest`` a line about the node that lacks least, if any is near."""

    summary: str
    nearest: tuple[str, ...]
    sections: tuple[Section, ...]


def survey(observed: ObservedCluster, resolved_pools: ResolvedNodePools, pod: Pod) -> Rooms:
    """What stands in the way on every node and claim that is there."""
    snapshot = observed.snapshot
    places = build_cluster_state(
        snapshot, resolved_pools.instance_types, daemon_set_pods(snapshot.daemon_sets), frozenset()
    ).nodes
    if not places:
        return Rooms(summary="there is no node", nearest=(), sections=())
    asked = {**pod_constraints.amounts(pod), PODS: 1}
    try:
        alternatives = required_alternatives(pod.spec)
    except RequirementError:
        alternatives = ()
    lacking = [(p, _lacks(p, pod, asked, alternatives)) for p in places]
    counted = Counter(kind for _, lacks in lacking for kind in lacks)
    checks = [
        Check(what=kind, ok=False, detail=f"on {count} of {terminal.plural(len(places), 'node')}")
        for kind, count in counted.most_common(_SHOWN)
    ]
    free = sum(not lacks for _, lacks in lacking)
    if free:
        checks.append(
            Check(
                what="rules about other pods or volumes",
                ok=False,
                detail=f"on {terminal.plural(free, 'node')} with room",
            )
        )
    near = min(lacking, key=lambda one: (len(one[1]), sum(one[1].values()), one[0].name))
    nearest = (
        (f"nearest node {near[0].name}: {', '.join(_told(near[0], near[1], asked))}",) if len(near[1]) == 1 else ()
    )
    title = f"Nodes that are there · {len(places)}"
    return Rooms(
        summary=f"none of {terminal.plural(len(places), 'node')} that are there takes it",
        nearest=nearest,
        sections=(Section(title=title, checks=tuple(checks)),),
    )


def _lacks(place: StateNode, pod: Pod, asked: Resources, alternatives: tuple[Requirements, ...]) -> dict[str, float]:
    """What is in the way, in words that nodes have in common, with how far off it is (1: wholly)."""
    found: dict[str, float] = {}
    taint = untolerated(pod.spec.tolerations, place.taints, effects=REPELLING)
    if taint is not None:
        found[f"taint {format_taint(taint)} isn't tolerated"] = 1.0
    wrong = [
        [key for key, allowed in sorted(a.items()) if not allowed.has(place.labels.get(key))] for a in alternatives
    ]
    least = min(wrong, key=len, default=[])
    for key in least:
        found[f"label {key} isn't what it asks for"] = 1.0
    for name, amount in sorted(asked.items()):
        room = place.available.get(name, 0)
        if amount > room:
            found[f"too little {name} is free"] = (amount - max(room, 0)) / amount
    return found


def _told(place: StateNode, lacks: dict[str, float], asked: Resources) -> list[str]:
    told = []
    for what in lacks:
        name = what.removeprefix("too little ").removesuffix(" is free")
        if name in asked and what.startswith("too little"):
            room = format_quantity(name, max(0, place.available.get(name, 0)))
            told.append(f"{name} {format_quantity(name, asked[name])} is asked, {room} is free")
        else:
            told.append(what)
    return told
