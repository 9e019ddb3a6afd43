"""Whether a pool and its class have a zone in common: else nothing can ever be launched, and someone must say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.ami_family.families import is_legacy
from shared.api import labels
from shared.instance_types.compatibility import met

if TYPE_CHECKING:
    from shared.api.nodeclass import EC2NodeClass
    from shared.api.nodepool import NodePool


def conflict(pool: NodePool, node_class: EC2NodeClass) -> str | None:
    """Why no subnet of the class is in a zone that the pool allows, naming both fields; None if one is."""
    asked = [
        r for r in pool.spec.template.spec.requirements if labels.canonical(r.key) in {labels.ZONE, labels.ZONE_ID}
    ]
    subnets = node_class.status.subnets
    for requirement in asked:
        by_id = labels.canonical(requirement.key) == labels.ZONE_ID
        subnets = [s for s in subnets if met(requirement.operator, requirement.values, s.zone_id if by_id else s.zone)]
    if subnets or not node_class.status.subnets:
        return None
    field = "spec.subnetSelector" if is_legacy(node_class.kind) else "spec.subnetSelectorTerms"
    there = ", ".join(sorted({f"{s.zone} ({s.zone_id})" if s.zone_id else s.zone for s in node_class.status.subnets}))
    wanted = " and ".join(f"{r.key} {r.operator} {', '.join(r.values)}".rstrip() for r in asked)
    return (
        f"{field} of {node_class.kind} {node_class.name} selects subnets in {there} only, "
        f"but {pool.kind} {pool.name} requires {wanted}"
    )
