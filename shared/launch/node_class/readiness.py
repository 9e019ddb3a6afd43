"""Whether a NodePool can launch with its NodeClass, or why not: missing, being deleted, not ready, no common zone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels
from shared.api.meta import EventReason, condition
from shared.api.nodeclass import READY
from shared.instance_types.compatibility import met

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.nodeclass import EC2NodeClass
    from shared.api.nodepool import NodePool


def node_class_of(pool: NodePool, classes: Iterable[EC2NodeClass]) -> EC2NodeClass | None:
    """The NodeClass that the pool refers to, or None if there is none of that name."""
    name = pool.spec.template.spec.node_class_ref.name
    return next((c for c in classes if c.name == name), None)


def node_class_not_ready(pool: NodePool, node_class: EC2NodeClass | None) -> tuple[str, str] | None:
    """Why the pool can't launch with its NodeClass (reason, message), or None if it can."""
    name = pool.spec.template.spec.node_class_ref.name
    if node_class is None:
        return EventReason("NodeClassNotFound"), f'there is no valid EC2NodeClass or AWSNodeTemplate named "{name}"'
    if node_class.metadata.deletion_timestamp is not None:
        return EventReason("NodeClassTerminating"), f"{node_class.ref} is being deleted"
    ready = condition(node_class.status.conditions, READY)
    if ready is None or ready.status != "True":
        message = ready.message if ready is not None else "its status is not known yet"
        return EventReason("NodeClassNotReady"), f"{node_class.ref}: {message}"
    conflict = zone_conflict(pool, node_class)
    return (EventReason("ZonesConflict"), conflict) if conflict is not None else None


def zone_conflict(pool: NodePool, node_class: EC2NodeClass) -> str | None:
    """Why no subnet of the class is in a zone that the pool allows, naming both fields; None if one is."""
    requirements = [
        r for r in pool.spec.template.spec.requirements if labels.normalize_key(r.key) in {labels.ZONE, labels.ZONE_ID}
    ]
    subnets = node_class.status.subnets
    for requirement in requirements:
        by_id = labels.normalize_key(requirement.key) == labels.ZONE_ID
        subnets = [s for s in subnets if met(requirement.operator, requirement.values, s.zone_id if by_id else s.zone)]
    if subnets or not node_class.status.subnets:
        return None
    field = node_class.selector_path("subnetSelectorTerms")
    zones = ", ".join(sorted({f"{s.zone} ({s.zone_id})" if s.zone_id else s.zone for s in node_class.status.subnets}))
    required = " and ".join(f"{r.key} {r.operator} {', '.join(r.values)}".rstrip() for r in requirements)
    return (
        f"{field} of {node_class.kind} {node_class.name} selects subnets in {zones} only, "
        f"but {pool.kind} {pool.name} requires {required}"
    )
