"""NodePools and EC2NodeClasses of a cluster with Karpenter: which of their fields mean something else for Tenon.

The fields are those of docs/karpenter-differences.md; one is reported only where an object has a value that differs.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shared.api.nodeclass import EC2NodeClass
    from shared.api.nodepool import NodePool

_POLICIES = {
    "WhenEmptyOrUnderutilized": "nodes are consolidated when the savings pay for the moved pods, not whenever it is "
    "cheaper",
    "Balanced": "as with WhenEmptyOrUnderutilized the savings must pay for the moved pods, and be at least half of the "
    "disruption",
}
_NEVER = "Never"


def shared_weights(pools: Sequence[NodePool]) -> frozenset[int]:
    """The weights that several NodePools have."""
    return frozenset(weight for weight, count in Counter(p.spec.weight for p in pools).items() if count > 1)


def of_node_pool(pool: NodePool, weights: frozenset[int]) -> Iterator[str]:
    """What differs for a NodePool; ``weights`` are those that several have."""
    disruption = pool.spec.disruption
    if disruption.consolidation_policy in _POLICIES:
        policy = disruption.consolidation_policy
        yield f"spec.disruption.consolidationPolicy {policy}: {_POLICIES[policy]}"
    lifetime = pool.spec.template.spec.expire_after
    if lifetime != _NEVER:
        yield (
            f"spec.template.spec.expireAfter {lifetime}: an expired node is replaced first, within budgets without "
            "reasons; Karpenter drains it at once"
        )
    if pool.spec.weight in weights:
        yield f"spec.weight {pool.spec.weight}: NodePools of equal weight compete by price, not by name"


def of_node_class(node_class: EC2NodeClass) -> Iterator[str]:
    """What differs for an EC2NodeClass."""
    spec = node_class.spec
    if spec.role:
        yield f"spec.role {spec.role}: unless it is Tenon's own, deploy with -c nodeRoles={spec.role}"
    if spec.instance_profile:
        yield (
            f'spec.instanceProfile "{spec.instance_profile}": deploy with -c nodeRoles=ROLE, the role in it, or no '
            "node of it launches"
        )
    if (spec.kubelet or {}).get("maxPods") is None:
        yield "spec.kubelet.maxPods is not given: pods of a node follow the settings of the VPC CNI's DaemonSet"
    if spec.ip_prefix_count:
        yield "spec.ipPrefixCount: only instance types whose interfaces hold as many prefixes"
