"""Reads the PodGroups of pods.

They are read by name, because few pods belong to one: that needs no right to list them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.pod_group import StoredPodGroup, missing
from shared.api.pod_references import COSCHEDULING, KUBERNETES, PROVISIONING_REQUEST, VOLCANO
from shared.base.runtime import KUBERNETES_THREADS, in_threads
from shared.cluster import listing, resources
from shared.cluster.errors import ForbiddenError, NotFoundError
from shared.snapshot import InvalidObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.api.pod_group import PodGroup
    from shared.api.pod_references import PodGroupKey
    from shared.cluster.client import Client

RESOURCES = {
    KUBERNETES: resources.POD_GROUPS,
    COSCHEDULING: resources.COSCHEDULING_POD_GROUPS,
    VOLCANO: resources.VOLCANO_POD_GROUPS,
    PROVISIONING_REQUEST: resources.PROVISIONING_REQUESTS,
}
"""By API group; ProvisioningRequests are read with the room that they want (provisioning_requests)."""
MOST = 100
"""As many PodGroups are read for a decision, the first that are given; the others are read for a later one."""
_LATER = "other PodGroups are looked at first"


def read(client: Client, keys: Iterable[PodGroupKey]) -> Mapping[PodGroupKey, PodGroup]:
    """The PodGroups; those that can't be read have a problem.

    A pod may bear the label or annotation of a kind that no scheduler of the cluster knows: where such a PodGroup
    doesn't exist it is left out, so that its pods are planned like any others.

    Raises:
        ApiError: the API server can't be read.
    """
    ordered = list(keys)
    first = ordered[:MOST]
    read_groups = in_threads(lambda key: _read(client, key), first, threads=KUBERNETES_THREADS)
    groups = dict(zip(first, read_groups, strict=True))
    groups |= {key: missing(key, _LATER) for key in ordered[MOST:]}
    return {key: group for key, group in groups.items() if group is not None}


def _read(client: Client, key: PodGroupKey) -> PodGroup | None:
    resource = RESOURCES[key.api_group]
    try:
        stored = client.get(resource.path(key.name, namespace=key.namespace))
    except NotFoundError:
        if key.api_group != KUBERNETES:
            return None
        return missing(key, f"it doesn't exist as {resource.api_version}")
    except ForbiddenError:
        return missing(
            key, f"Tenon may not read it: the cluster lacks the right to get {resource.plural}.{resource.group}"
        )
    decoded = listing.decode(stored, resource, StoredPodGroup)
    if isinstance(decoded, InvalidObject):
        return missing(key, f"it can't be read: {decoded.problems[0]}")
    return decoded.pod_group()
