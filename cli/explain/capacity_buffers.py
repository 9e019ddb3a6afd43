"""What a CapacityBuffer asks for, which nodes have room for its chunks, and why others have none."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cli.errors import UsageError
from cli.explain.explanation import Check, Explanation, Section
from cli.plan.planning import plan_launches
from shared.base.plurals import plural
from shared.disruption.simulated_scheduling import initialized_node_names
from shared.scheduling.buffers.chunks import buffer_of, resolved_buffers

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from cli.cluster.observed_cluster import ObservedCluster
    from shared.scheduling.buffers.chunks import ResolvedBuffer
    from shared.scheduling.buffers.demand import Demand
    from shared.scheduling.decision import Decision

_MAX_NODES = 10
_MAX_REASONS = 3


def explain(observed: ObservedCluster, key: str) -> Explanation:
    """The buffer (namespace/name) with the nodes that have its room.

    Raises:
        UsageError: there is no such CapacityBuffer with active capacity.
    """
    buffers = {b.objects.key: b for b in resolved_buffers(observed.snapshot) if b.objects.request is None}
    resolved = buffers.get(key)
    if resolved is None:
        raise UsageError(
            f"there is no CapacityBuffer {key} with active capacity (there: {', '.join(buffers) or 'none'})"
        )
    buffer = resolved.objects.buffer
    about = (Section(title="CapacityBuffer", checks=_about(resolved)), *_wanted(resolved))
    if resolved.template is None:
        explanation = Explanation(
            subject=f"CapacityBuffer {key}",
            state="keeps no room",
            reason=resolved.message,
            criterion=resolved.reason,
            sections=about,
        )
    else:
        decision = plan_launches(observed, observed.offerings.resolve_pools(observed.snapshot))
        explanation = _with_room(observed, resolved, decision, about)
    return explanation.with_history(observed.history.events(buffer.ref))


def _with_room(
    observed: ObservedCluster, resolved: ResolvedBuffer, decision: Decision, about: tuple[Section, ...]
) -> Explanation:
    key = resolved.objects.buffer.key
    counts = {name: sum(buffer_of(chunk) == key for chunk in chunks) for name, chunks in decision.chunks.items()}
    by_node = {name: count for name, count in counts.items() if count}
    initialized = initialized_node_names(observed.snapshot)
    fitting = sum(count for name, count in by_node.items() if name in initialized)
    missing = _missing(key, decision, coming=sum(by_node.values()) - fitting)
    room = (Section(title="Room", checks=_nodes(by_node, initialized)),) if by_node else ()
    return Explanation(
        subject=f"CapacityBuffer {key}",
        state=f"has room for {fitting} of {plural(resolved.chunks, 'chunk')}",
        reason="; ".join(missing),
        criterion="incomplete" if missing else "whole",
        sections=(*about, *room),
    )


def _missing(key: str, decision: Decision, *, coming: int) -> list[str]:
    """Where chunks without room on an initialized node will have some, or why they won't."""
    launched = sum(buffer_of(chunk) == key for claim in decision.new_node_claims for chunk in claim.chunks)
    errors = Counter(e.message for chunk, e in decision.chunk_errors.items() if buffer_of(chunk) == key)
    on_their_way = {"on nodes that are coming": coming, "on nodes to launch": launched}
    return [
        *(f"{plural(count, 'chunk')} {where}" for where, count in on_their_way.items() if count),
        *(f"{plural(count, 'chunk')} can't be scheduled: {why}" for why, count in errors.most_common(_MAX_REASONS)),
    ]


def _nodes(by_node: Mapping[str, int], initialized: Collection[str]) -> tuple[Check, ...]:
    """The nodes with room, initialized ones first."""
    ordered = sorted(by_node.items(), key=lambda item: (item[0] not in initialized, item[0]))
    checks = [
        Check(name=name, ok=name in initialized or None, detail=_on_node(count, initialized=name in initialized))
        for name, count in ordered[:_MAX_NODES]
    ]
    if len(ordered) > _MAX_NODES:
        checks.append(Check(name=plural(len(ordered) - _MAX_NODES, "more node"), ok=None))
    return tuple(checks)


def _on_node(count: int, *, initialized: bool) -> str:
    return plural(count, "chunk") + ("" if initialized else ", not initialized")


def _about(resolved: ResolvedBuffer) -> tuple[Check, ...]:
    spec, workload = resolved.objects.buffer.spec, resolved.objects.workload
    if spec.scalable_ref is not None:
        of = f"{spec.scalable_ref.kind} {spec.scalable_ref.name}"
        of += f", {plural(workload.spec.replicas, 'replica')}" if workload is not None else ""
    else:
        of = f"PodTemplate {spec.pod_template_ref.name}" if spec.pod_template_ref is not None else "nothing"
    size = {
        "replicas": str(spec.replicas) if spec.replicas is not None else "",
        "percentage": f"{spec.percentage} %" if spec.percentage is not None else "",
        "limits": ", ".join(f"{name} {amount}" for name, amount in sorted((spec.limits or {}).items())),
    }
    rows = {"pods of": of, **size, "chunks": str(resolved.chunks)}
    return tuple(Check(name=name, ok=None, detail=detail) for name, detail in rows.items() if detail)


def _wanted(resolved: ResolvedBuffer) -> tuple[Section, ...]:
    """What each annotation wants of the spec's chunks, if there are any."""
    checks = tuple(
        Check(name=demand.annotation, ok=None, detail=f"{_of_spec(demand, resolved.most)}: {demand.why}")
        for demand in resolved.demands
    )
    title = f"Wanted now: {resolved.chunks} of {plural(resolved.most, 'chunk')}"
    return (Section(title=title, checks=checks),) if checks else ()


def _of_spec(demand: Demand, most: int) -> str:
    return "all" if demand.chunks is None or demand.chunks >= most > 0 else str(demand.chunks or "none")
