"""Node groups in decisions: as NodePools of one instance type, and their coming instances as NodeClaims. Pure.

A group that may grow is presented to scheduling as a NodePool that is limited to the group's room. Its nodes have only
the labels that the group's nodes have, so neither ``karpenter.sh/nodepool`` nor ``karpenter.sh/capacity-type``: a pod
that requires these is not for it. Instances that have no Ready node yet are presented as NodeClaims without a node, so
that pods wait for them and nothing is launched twice; their Node objects are hidden until they are Ready.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.meta import ObjectMeta, is_true
from shared.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClaimStatus
from shared.api.nodepool import (
    NODE_GROUP_KIND,
    NODE_GROUP_PREFIX,
    NodeClaimTemplate,
    NodePool,
    NodePoolSpec,
    TemplateMetadata,
    TemplateSpec,
)
from shared.api.quantity import NODES, format_resources
from shared.base.struct import Struct, with_fields
from shared.instance_types.instance_type import InstanceType, Offering
from shared.instance_types.provider import volume_price

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime, timedelta

    from shared.api.kubernetes import Node
    from shared.node_groups.node_group import GroupInstance, NodeGroup
    from shared.node_groups.template_node import TemplateNode
    from shared.scheduling.decision import Decision
    from shared.snapshot import Snapshot

DEFAULT_GIB = 20
"""The volume of a group's node, as EKS creates it by default; the real size isn't known here."""
DEFAULT_WEIGHT = 1
"""The weight of a NodePool without one: groups and NodePools are equal, and the cheaper one grows."""


class ComingNode(Struct, kw_only=True):
    """A node of a group that isn't Ready yet; without ``instance`` its launch hasn't begun, and ``zone`` is ""."""

    name: str
    zone: str = ""
    instance: str = ""


class GroupPool(Struct, kw_only=True):
    """A group as decisions see it; ``held`` says why it isn't asked for nodes now."""

    group: NodeGroup
    node: TemplateNode
    coming: tuple[ComingNode, ...] = ()
    weight: int = DEFAULT_WEIGHT
    held: str = ""

    @property
    def pool_name(self) -> str:
        """The name of its NodePool in decisions."""
        return pool_name(self.group.name)


def pool_name(group: str) -> str:
    """The name of a group's NodePool in decisions."""
    return NODE_GROUP_PREFIX + group


def coming_nodes(
    group: NodeGroup, nodes: Mapping[str, Node], *, now: datetime, within: timedelta
) -> tuple[ComingNode, ...]:
    """The nodes that the group was asked for and that aren't Ready.

    ``nodes`` are by provider id. A node that isn't Ready for longer than ``within`` is broken, not coming.
    """
    expected = [instance for instance in group.instances if instance.is_expected]
    coming = [
        ComingNode(name=f"{group.name}/{instance.id}", zone=instance.zone, instance=instance.provider_id)
        for instance in expected
        if _is_coming(instance, nodes, now=now, within=within)
    ]
    unlaunched = max(0, group.desired - len(expected))
    return (*coming, *(ComingNode(name=f"{group.name}/{number}") for number in range(unlaunched)))


def _is_coming(instance: GroupInstance, nodes: Mapping[str, Node], *, now: datetime, within: timedelta) -> bool:
    node = nodes.get(instance.provider_id)
    if node is None:
        return True
    created = node.metadata.creation_timestamp
    is_young = created is not None and now - created < within
    return is_young and not is_true(node.status.conditions, "Ready")


def next_zones(group: NodeGroup) -> tuple[str, ...]:
    """The zones that the group's next instance may come up in: Auto Scaling fills the one with the fewest.

    A zone that is two or more behind has no capacity, because the group is balanced otherwise: it is left out.
    """
    count = Counter(instance.zone for instance in group.instances if instance.is_expected)
    numbers = [count[zone] for zone in group.zones]
    least, most = min(numbers, default=0), max(numbers, default=0)
    if most - least <= 1:
        return tuple(zone for zone in group.zones if count[zone] == least)
    return tuple(zone for zone in group.zones if count[zone] > least)


def node_pool(pool: GroupPool) -> NodePool:
    """The NodePool that stands for the group."""
    return NodePool(
        kind=NODE_GROUP_KIND,
        metadata=ObjectMeta(name=pool.pool_name),
        spec=NodePoolSpec(
            template=NodeClaimTemplate(
                metadata=TemplateMetadata(labels=_own_labels(pool.node)),
                spec=TemplateSpec(taints=list(pool.node.taints)),
            ),
            limits={NODES: pool.group.room},
            weight=pool.weight,
        ),
    )


def instance_types(pool: GroupPool) -> tuple[InstanceType, ...]:
    """The one instance type that stands for the group's nodes, offered where the next one may come up."""
    node = pool.node
    shared = {key: value for key, value in node.labels.items() if key in names.WELL_KNOWN and key not in _OF_OFFERINGS}
    capacity_type = node.labels.get(names.CAPACITY_TYPE, "")
    volumes = volume_price(DEFAULT_GIB, node.labels.get(names.REGION, ""))
    offerings = tuple(
        Offering(zone=zone, capacity_type=capacity_type, price=node.price or 0.0, volume_price=volumes)
        for zone in next_zones(pool.group)
    )
    return (
        InstanceType(
            name=node.instance_type, labels=shared, capacity=node.allocatable, overhead={}, offerings=offerings
        ),
    )


_OF_OFFERINGS = frozenset({names.ZONE, names.CAPACITY_TYPE})


def _own_labels(node: TemplateNode) -> dict[str, str]:
    return {key: value for key, value in node.labels.items() if names.normalize_key(key) not in names.WELL_KNOWN}


def present(snapshot: Snapshot, pools: Collection[GroupPool]) -> Snapshot:
    """The snapshot with the groups as NodePools, and their coming nodes as NodeClaims."""
    hidden = {coming.instance for pool in pools for coming in pool.coming} - {""}
    return with_fields(
        snapshot,
        node_pools=(*snapshot.node_pools, *(node_pool(pool) for pool in pools)),
        node_claims=(*snapshot.node_claims, *(_claim(pool, coming) for pool in pools for coming in pool.coming)),
        nodes=tuple(node for node in snapshot.nodes if node.spec.provider_id not in hidden),
    )


def _claim(pool: GroupPool, coming: ComingNode) -> NodeClaim:
    resources = format_resources(pool.node.allocatable)
    zone = {names.ZONE: coming.zone} if coming.zone else {}
    return NodeClaim(
        metadata=ObjectMeta(name=coming.name, labels={**pool.node.labels, **zone}),
        spec=NodeClaimSpec(taints=list(pool.node.taints)),
        status=NodeClaimStatus(provider_id=coming.instance, allocatable={**resources}, capacity={**resources}),
    )


class ScaleUp(Struct, kw_only=True):
    """How many nodes a group grows by, and the pods (namespace/name) that they are for."""

    group: NodeGroup
    nodes: int
    pods: tuple[str, ...]

    @property
    def desired(self) -> int:
        """The group's desired capacity after it."""
        return min(self.group.maximum, self.group.desired + self.nodes)

    @property
    def message(self) -> str:
        """What pods are told, in Cluster Autoscaler's words."""
        sizes = f"{self.group.desired}->{self.desired} (max: {self.group.maximum})"
        return f"pod triggered scale-up: [{{{self.group.name} {sizes}}}]"


def scale_ups(decision: Decision, pools: Iterable[GroupPool]) -> tuple[ScaleUp, ...]:
    """What the decision asks of groups, by group."""
    groups = {pool.pool_name: pool.group for pool in pools}
    planned = [claim for claim in decision.new_node_claims if claim.node_pool in groups]
    return tuple(
        ScaleUp(
            group=group,
            nodes=sum(claim.node_pool == name for claim in planned),
            pods=tuple(pod for claim in planned if claim.node_pool == name for pod in claim.pods),
        )
        for name, group in sorted(groups.items())
        if any(claim.node_pool == name for claim in planned)
    )
