"""The node groups of a cluster whose deployment scales them, as its functions decide on them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from cli import terminal
from shared.api.nodepool import NODE_GROUP_KIND
from shared.api.pause import paused_pools
from shared.base.struct import Struct, with_fields
from shared.node_groups.group_decision import decide, with_groups
from shared.node_groups.group_pools import present
from shared.node_groups.reader import read_groups
from shared.node_groups.scale_down import member_nodes, plan_scale_down, removal_delay, unneeded_since
from shared.node_groups.services import group_services

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from cli.cluster.offerings import CatalogOfferings, OfferingSource
    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import ResolvedNodePools
    from shared.cluster.client import Client
    from shared.instance_types.instance_type import InstanceType
    from shared.node_groups.group_pools import GroupPool
    from shared.node_groups.reader import GroupsInView
    from shared.node_groups.scale_down import MemberNode, ScaleDownPlan
    from shared.snapshot import Snapshot


class ObservedGroups(Struct, kw_only=True):
    """The node groups in their order of growth, and which of their nodes aren't needed."""

    view: GroupsInView
    pools: tuple[GroupPool, ...]
    members: Mapping[str, MemberNode]
    """By node."""
    scale_down: ScaleDownPlan

    @property
    def group_by_node(self) -> dict[str, str]:
        """The name of each node's group, by node."""
        return {name: member.group.name for name, member in self.members.items()}

    def presented(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the groups as NodePools, and their coming nodes as NodeClaims."""
        return present(snapshot, self.pools)

    def coming(self, snapshot: Snapshot) -> tuple[NodeClaim, ...]:
        """The nodes that groups were asked for and that haven't joined, as NodeClaims."""
        joined = {node.spec.provider_id for node in snapshot.nodes}
        claims = self.presented(with_fields(snapshot, node_claims=())).node_claims
        return tuple(claim for claim in claims if claim.status.provider_id not in joined)

    def removal_due(self, node: str, now: datetime) -> timedelta | None:
        """How long until an unneeded node is removed; None if it is needed, or no sweep has seen it unneeded."""
        member = self.members.get(node)
        if member is None or member not in self.scale_down.unneeded:
            return None
        since = unneeded_since(member)
        return None if since is None else max(timedelta(), since + removal_delay(member, self.view.options) - now)

    def removal_time(self, node: str, now: datetime) -> str:
        """When an unneeded node is removed, to follow "is removed"."""
        due = self.removal_due(node, now)
        if due is None:
            return "once it has been unneeded for long enough"
        return f"in {terminal.age(due)}" if due else "now"


class GroupOfferings(Struct, kw_only=True):
    """What NodePools and node groups can launch."""

    own: OfferingSource
    pools: tuple[GroupPool, ...]

    def resolve_pools(self, snapshot: Snapshot) -> ResolvedNodePools:
        """Instance types with prices by NodePool and group, and why one can't launch."""
        own = tuple(pool for pool in snapshot.node_pools if pool.kind != NODE_GROUP_KIND)
        resolved = with_groups(self.own.resolve_pools(with_fields(snapshot, node_pools=own)), self.pools)
        types = {pool.pool_name: _in_all_zones(pool, resolved) for pool in self.pools}
        resolved = with_fields(resolved, instance_types={**resolved.instance_types, **types})
        return resolved.paused(paused_pools(snapshot.node_pools, snapshot.pause, now=snapshot.taken_at))


def _in_all_zones(pool: GroupPool, resolved: ResolvedNodePools) -> tuple[InstanceType, ...]:
    """The group's instance type with its price in zones, too, that the group doesn't grow in next."""
    (of_group,) = resolved.instance_types[pool.pool_name]
    offered = {offering.zone for offering in of_group.offerings}
    elsewhere = tuple(
        with_fields(of_group.offerings[0], zone=zone, available=False)
        for zone in pool.group.zones
        if zone not in offered
    )
    return (with_fields(of_group, offerings=(*of_group.offerings, *elsewhere)),)


def read(
    client: Client, cluster: str, snapshot: Snapshot, offerings: CatalogOfferings, *, now: datetime
) -> ObservedGroups | None:
    """The node groups that the deployment scales; None if there are none.

    Raises:
        ApiError, ClientError, BotoCoreError: the cluster or AWS can't be read.
    """
    view = read_groups(client, snapshot, group_services(), cluster=cluster, catalog=offerings.raw, now=now)
    if view is None:
        return None
    resolved = offerings.resolve_pools(snapshot)
    pools = decide(view.pools, view.options, view.priorities, snapshot, resolved).pools
    members = member_nodes(snapshot, view.groups)
    return ObservedGroups(
        view=view,
        pools=pools,
        members={member.name: member for member in members},
        scale_down=plan_scale_down(snapshot, members, view.options, now=now),
    )
