"""The NodePool of tests of a cluster's incidents, and pods that need a node of it each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local.world import sample_objects

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj
    from local.world import World

REQUIREMENTS = {"karpenter.sh/capacity-type": ["on-demand"], "node.kubernetes.io/instance-type": ["c5.large"]}


def pool(world: World, *, budgets: str = "100%", **template: Any) -> None:
    """A node class and a NodePool of one instance type, consolidated after half a minute."""
    disruption = {"consolidateAfter": "30s", "budgets": [{"nodes": budgets}]}
    world.apply(sample_objects.node_class(world))
    world.apply(sample_objects.node_pool(REQUIREMENTS, disruption=disruption, template=template))


def web(replicas: int, **pod: Any) -> Obj:
    """A Deployment whose pods need a node each."""
    return sample_objects.deployment("web", replicas, {"cpu": "1"}, affinity=sample_objects.one_per_node("web"), **pod)
