"""Writes the status of node groups to ConfigMap ``kube-system/cluster-autoscaler-status``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.meta import ObjectMeta
from shared.base.struct import with_fields
from shared.cluster import writes
from shared.cluster.errors import ConflictError, NotFoundError
from shared.cluster.resources import CONFIG_MAPS
from shared.node_groups import status
from shared.node_groups.stored_options import NAMESPACE, StoredConfigMap, read_config_map

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from shared.api.kubernetes import Node
    from shared.cluster.client import Client
    from shared.node_groups.status import GroupView


def write_status(client: Client, views: Sequence[GroupView], nodes: Collection[Node], *, now: datetime) -> bool:
    """Publish the groups' status, if it has changed or the last one is old; whether it was written.

    Raises:
        ApiError: the API server can't be read or written.
    """
    stored = read_config_map(client, status.CONFIG_MAP)
    before = status.parse(stored.data.get(status.KEY, ""))
    current = status.document(views, nodes, before, now=now)
    if not status.is_due(current, before):
        return False
    text = status.encode(current)

    def change(config_map: StoredConfigMap) -> StoredConfigMap:
        metadata = config_map.metadata
        annotations = {**metadata.annotations, status.LAST_UPDATED: current["time"]}
        return with_fields(
            config_map,
            metadata=with_fields(metadata, annotations=annotations),
            data={**config_map.data, status.KEY: text},
        )

    try:
        if stored.metadata.name:
            writes.update(client, CONFIG_MAPS, stored, change)
        else:
            metadata = ObjectMeta(name=status.CONFIG_MAP, namespace=NAMESPACE)
            writes.create(client, CONFIG_MAPS, change(StoredConfigMap(metadata=metadata)))
    except (ConflictError, NotFoundError):
        return False  # another writer's, or deleted meanwhile: the next sweep looks again
    return True
