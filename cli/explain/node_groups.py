"""Why a node group grows, shrinks or stays as it is."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cli import terminal
from cli.errors import UsageError
from cli.explain.explanation import Check, Explanation, Section
from cli.explain.node_pools import next_launch
from shared.api.quantity import format_resources
from shared.api.taints import format_taint
from shared.base.plurals import plural
from shared.node_groups.scaling import STATUS

if TYPE_CHECKING:
    from cli.cluster.node_groups import ObservedGroups
    from cli.cluster.observed_cluster import ObservedCluster
    from shared.node_groups.group_pools import GroupPool


def explain(observed: ObservedCluster, name: str) -> Explanation:
    """What the node group would add or remove now. A managed one may be named as EKS does.

    Raises:
        UsageError: no such group is scaled.
    """
    groups = observed.node_groups
    if groups is None:
        raise UsageError("Tenon scales no node groups of this cluster: deploy with -c nodeGroups=on")
    pool = next((p for p in groups.pools if name in {p.group.name, p.group.managed}), None)
    if pool is None:
        names = ", ".join(p.group.managed or p.group.name for p in groups.pools) or "none"
        raise UsageError(f'there is no node group "{name}" that can be scaled (there: {names})')
    if pool.held:
        state, reason, criterion = "isn't scaled up", pool.held, "held"
    elif pool.group.desired >= pool.group.maximum:
        state, reason, criterion = "can't grow", "it is at its maximum size", "maximum"
    else:
        resolved_pools = observed.offerings.resolve_pools(observed.snapshot)
        (of_group,) = (p for p in observed.snapshot.node_pools if p.name == pool.pool_name)
        state, reason, criterion = "can grow", next_launch(observed, resolved_pools, of_group), "ready"
    return Explanation(
        subject=f"Node group {pool.group.name}",
        state=state,
        reason=reason,
        criterion=criterion,
        sections=(
            Section(title="Size", checks=_size(pool)),
            Section(title="Its next node", checks=_next_node(pool)),
            Section(title="Scale-down", checks=_scale_down(groups, pool)),
        ),
    ).with_history(
        tuple(event for event in observed.history.events(STATUS) if f"group {pool.group.name} " in event.message)
    )


def _size(pool: GroupPool) -> tuple[Check, ...]:
    group = pool.group
    return (
        Check(name="nodes", ok=None, detail=f"{group.desired}, {len(pool.coming)} of them on the way"),
        Check(
            name="limits", ok=group.desired < group.maximum, detail=f"at least {group.minimum}, at most {group.maximum}"
        ),
        *([Check(name="held", ok=False, detail=pool.held)] if pool.held else []),
    )


def _next_node(pool: GroupPool) -> tuple[Check, ...]:
    node = pool.node
    amounts = ", ".join(f"{name} {amount}" for name, amount in format_resources(node.allocatable).items())
    price = f"{terminal.usd(node.price)}/h" if node.price is not None else "unknown price"
    details = {
        "instance": f"{node.instance_type}, {price}, {', '.join(pool.group.zones)}",
        "allocatable": amounts,
        "taints": ", ".join(format_taint(t) for t in node.taints),
    }
    return tuple(Check(name=name, ok=None, detail=detail) for name, detail in details.items() if detail)


def _scale_down(groups: ObservedGroups, pool: GroupPool) -> tuple[Check, ...]:
    own = {node for node, group in groups.group_by_node.items() if group == pool.group.name}
    unneeded = sum(member.name in own for member in groups.scale_down.unneeded)
    reasons = Counter(why for node, why in groups.scale_down.reasons.items() if node in own)
    return (
        Check(name="unneeded", ok=None, detail=plural(unneeded, "node")),
        *(Check(name="kept", ok=None, detail=f"{count} × {why}") for why, count in reasons.most_common()),
    )
