"""The nodes of the cluster's groups by instance id, listed once for a batch of events.

Every cluster of an account receives the Region's events, so most are about other instances: a list of nodes that is
newer than an event is enough to ignore it. An instance with a NodeClaim is none of a group's.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shared.api.kubernetes import Node
from shared.base.struct import Struct
from shared.cloud_provider import instance_id
from shared.cluster import resources
from shared.cluster.listing import list_objects
from shared.cluster.node_class_groups import list_node_claims
from shared.node_groups import stored_options

if TYPE_CHECKING:
    from collections.abc import Collection

    from shared.cluster.client import Client
    from shared.node_groups.node_group import NodeGroup
    from shared.node_groups.services import GroupServices

_CLOCK_TOLERANCE = timedelta(seconds=2)
"""Event times are whole seconds."""
_CACHE_KEY = "nodegroups:instances"


class Member(Struct, kw_only=True):
    """A node of a group, and the lifecycle state of its instance."""

    node: Node
    group: NodeGroup
    state: str


class _KnownInstances(Struct):
    listed_at: datetime
    instance_ids: frozenset[str]


def members_with(
    instance_ids: Collection[str], client: Client, services: GroupServices, *, cluster: str, latest_event: datetime
) -> dict[str, Member]:
    """The nodes of these instances that belong to groups, by instance id; ``latest_event`` is the newest one's time.

    Raises:
        ApiError: nodes or NodeClaims can't be listed.
        ClientError, BotoCoreError: AWS refuses a call.
    """
    known: _KnownInstances | None = services.cache.get(_CACHE_KEY)
    wanted = set(instance_ids)
    if known is not None and known.listed_at >= latest_event + _CLOCK_TOLERANCE:
        wanted &= known.instance_ids
    nodes = _nodes(wanted, client, services) if wanted else {}
    if not nodes:
        return {}
    claims = list_node_claims(client).own.objects
    claimed = {instance_id(claim.status.provider_id) for claim in claims if claim.status.provider_id}
    options, _ = stored_options.read_options(client)
    return {
        instance.id: Member(node=nodes[instance.id], group=group, state=instance.state)
        for group in services.groups(cluster, now=services.clock())
        if not options.groups or group.name in options.groups
        for instance in group.instances
        if instance.id in nodes and instance.id not in claimed
    }


def _nodes(wanted: Collection[str], client: Client, services: GroupServices) -> dict[str, Node]:
    now = services.clock()
    listed = list_objects(client, resources.NODES, Node).objects
    nodes = {instance_id(node.spec.provider_id): node for node in listed if node.spec.provider_id}
    services.cache[_CACHE_KEY] = _KnownInstances(now, frozenset(nodes))
    return {id_: node for id_, node in nodes.items() if id_ in wanted}
