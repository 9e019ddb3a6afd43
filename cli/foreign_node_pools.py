"""Notes on NodePools in files that another provisioner launches, above all EKS Auto Mode: they are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.cluster.node_class_groups import AUTO_MODE_GROUP, foreign_node_pools

if TYPE_CHECKING:
    from collections.abc import Iterable


def notes(raw_pools: Iterable[dict[str, Any]]) -> list[str]:
    """A sentence for each group of node classes that isn't Karpenter's for AWS."""
    return [
        f"left out: NodePool{'s' if len(names) > 1 else ''} {', '.join(names)}: {_whose(group)}"
        for group, names in foreign_node_pools(raw_pools).items()
    ]


def _whose(group: str) -> str:
    if group == AUTO_MODE_GROUP:
        return f"EKS Auto Mode launches their nodes (spec.template.spec.nodeClassRef.group {group}), not Tenon"
    return f'their nodes are of another provisioner (spec.template.spec.nodeClassRef.group "{group}")'
