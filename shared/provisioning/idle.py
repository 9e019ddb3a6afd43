"""Whether a sweep has anything to provision: mostly not, and looking costs less than deciding.

Imported only by sweeps: a hint about a pod is decided on at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.capacity_buffer import CapacityBuffer
from shared.api.kubernetes import Node
from shared.api.pods import is_pending
from shared.cluster import listing, resources
from shared.cluster.snapshot_reader import cached_reader, list_if_kind_exists, list_node_pools

if TYPE_CHECKING:
    from shared.api.nodepool import NodePool
    from shared.cluster.client import Client


def is_idle(client: Client) -> bool:
    """Whether no pod is pending, no node is leaving or to be launched, and no NodePool or buffer keeps nodes.

    Raises:
        ApiError: the API server can't be read.
    """
    reader = cached_reader(client)
    if any(is_pending(pod) for pod in reader.pods.read().objects):
        return False
    claims = reader.node_claims().own.objects
    if any(claim.metadata.deletion_timestamp is not None or not claim.status.provider_id for claim in claims):
        return False
    if any(names.STANDBY in claim.metadata.annotations for claim in claims):
        return False
    nodes = list_if_kind_exists(client, resources.NODES, Node).objects
    if any(node.metadata.deletion_timestamp is not None for node in nodes):
        return False
    if any(_keeps_nodes(pool) for pool in list_node_pools(client)):
        return False
    return not listing.list_served(client, resources.CAPACITY_BUFFER_VERSIONS, CapacityBuffer).objects


def _keeps_nodes(pool: NodePool) -> bool:
    """Whether the NodePool wants nodes without a pod: it is static, or has standby nodes."""
    annotations = {**pool.metadata.annotations, **pool.spec.template.metadata.annotations}
    return pool.spec.replicas is not None or names.STANDBY in annotations
