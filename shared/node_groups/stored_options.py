"""Reads from the cluster how node groups are scaled, and whether Cluster Autoscaler scales them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from shared.api.meta import ObjectMeta
from shared.base.struct import WireStruct
from shared.cluster.errors import NotFoundError
from shared.cluster.lease import is_recent, read_lease
from shared.cluster.resources import CONFIG_MAPS
from shared.node_groups import options

if TYPE_CHECKING:
    from datetime import datetime

    from shared.cluster.client import Client
    from shared.node_groups.options import NodeGroupOptions

NAMESPACE = "kube-system"
CLUSTER_AUTOSCALER = "cluster-autoscaler"
"""The Lease by which Cluster Autoscaler elects its leader, in the same namespace."""
_ALIVE = timedelta(seconds=60)
"""Cluster Autoscaler renews its Lease every two seconds."""
_CLOCK_SKEW = timedelta(minutes=10)
"""How far its node's clock may be ahead: a later renewal would stop node groups as long."""


class StoredConfigMap(WireStruct):
    """A ConfigMap, as far as it is read."""

    api_version: str = CONFIG_MAPS.api_version
    kind: str = CONFIG_MAPS.kind
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


def read_options(client: Client) -> tuple[NodeGroupOptions, tuple[str, ...]]:
    """The options of ConfigMap ``kube-system/tenon-node-groups``, and what is wrong with others; without it defaults.

    Raises:
        ApiError: the API server can't be read.
    """
    config_map = read_config_map(client, options.CONFIG_MAP)
    return options.parse(config_map.data, config_map.metadata.annotations)


def read_config_map(client: Client, name: str) -> StoredConfigMap:
    """The ConfigMap of that name in kube-system, an empty one if it doesn't exist.

    Raises:
        ApiError: the API server can't be read.
    """
    try:
        return msgspec.json.decode(client.get(CONFIG_MAPS.path(name, namespace=NAMESPACE)), type=StoredConfigMap)
    except NotFoundError:
        return StoredConfigMap()


def cluster_autoscaler_runs(client: Client, *, now: datetime) -> bool:
    """Whether Cluster Autoscaler is at work: two autoscalers would both launch nodes for the same pods.

    Raises:
        ApiError: the API server can't be read.
    """
    renewed = lease_renewal(client)
    return renewed is not None and is_recent(renewed, now=now, within=_ALIVE, ahead=_CLOCK_SKEW)


def lease_renewal(client: Client) -> datetime | None:
    """When Cluster Autoscaler last renewed its Lease; None if nobody holds it.

    Raises:
        ApiError: the API server can't be read.
    """
    lease = read_lease(client, CLUSTER_AUTOSCALER, namespace=NAMESPACE)
    return lease.spec.renew_time if lease is not None and lease.spec.holder_identity else None
