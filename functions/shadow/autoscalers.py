"""Who scales each of the cluster's nodes: Karpenter, EKS Auto Mode, Cluster Autoscaler, or nobody.

Nodes that nobody scales, such as those of a system node group, stay as they are in the virtual cluster, with their
pods. Cluster Autoscaler counts as running while its Lease was renewed within the hour, so that its restart doesn't make
its nodes unscaled; only groups that it can grow are its own.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.cluster.lease import is_recent, read_lease
from shared.node_groups.services import group_services
from shared.node_groups.stored_options import CLUSTER_AUTOSCALER as LEASE
from shared.node_groups.stored_options import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from shared.api.kubernetes import Node
    from shared.cluster.client import Client
    from shared.snapshot import Snapshot

KARPENTER = "Karpenter"
AUTO_MODE = "EKS Auto Mode"
CLUSTER_AUTOSCALER = "Cluster Autoscaler"
COMPUTE_TYPE = "eks.amazonaws.com/compute-type"
_RUNNING = timedelta(hours=1)


def scaled_instances(client: Client, cluster: str, *, now: datetime) -> frozenset[str]:
    """The instances (provider id) of the node groups that Cluster Autoscaler scales; none while it doesn't run.

    Raises:
        ApiError: the API server can't be read.
        ClientError, BotoCoreError: AWS refuses a call.
    """
    lease = read_lease(client, LEASE, namespace=NAMESPACE)
    renewed = lease.spec.renew_time if lease is not None else None
    if renewed is None or not is_recent(renewed, now=now, within=_RUNNING):
        return frozenset()
    groups = group_services().groups(cluster, now=now)
    growing = (group for group in groups if group.maximum > group.minimum)
    return frozenset(instance.provider_id for group in growing for instance in group.instances)


def autoscalers(snapshot: Snapshot, scaled: Collection[str]) -> Mapping[str, str]:
    """Who scales each node, by the node's name; "" if nobody does. ``scaled`` are :func:`scaled_instances`."""
    return {node.metadata.name: _autoscaler(node, snapshot.foreign_provider_ids, scaled) for node in snapshot.nodes}


def _autoscaler(node: Node, foreign: Collection[str], scaled: Collection[str]) -> str:
    labels = node.metadata.labels
    if labels.get(COMPUTE_TYPE) == "auto" or node.spec.provider_id in foreign:
        return AUTO_MODE
    if any(names.normalize_key(key) == names.NODEPOOL for key in labels):
        return KARPENTER
    return CLUSTER_AUTOSCALER if node.spec.provider_id in scaled else ""
