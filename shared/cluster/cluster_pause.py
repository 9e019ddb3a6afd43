"""The pause of the whole cluster: annotations of the Lease under which decisions are made.

Whoever decides acquires that Lease, so the pause costs no request. Writing it changes the Lease's resourceVersion, so a
decision that is being made at that moment is not written (:meth:`shared.cluster.lease.Lease.check`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shared.api.pause import Pause, read_pause
from shared.cluster.errors import AlreadyExistsError, ApiError, NotFoundError
from shared.cluster.lease import NAMESPACE, LeaseObject, lease_name
from shared.cluster.resources import LEASES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from shared.cluster.client import Client


def cluster_pause(client: Client, *, cluster: str, now: datetime) -> Pause | None:
    """The cluster's pause, for those that don't hold the Lease; a Lease that can't be read counts as a pause."""
    try:
        return read_pause(_annotations(client, cluster), now=now)
    except (ApiError, msgspec.MsgspecError) as error:
        problem = f"Lease {NAMESPACE}/{lease_name(cluster)} can't be read, so it may be paused: {error}"
        return Pause(problem=problem)


def stored_pause(client: Client, *, cluster: str, now: datetime) -> Pause | None:
    """As :func:`cluster_pause`.

    Raises:
        ApiError: the Lease can't be read.
    """
    return read_pause(_annotations(client, cluster), now=now)


def write_annotations(client: Client, annotations: Mapping[str, str | None], *, cluster: str) -> None:
    """Change these annotations of the Lease (None removes one), which is created if it doesn't exist.

    Raises:
        ApiError: the Lease can't be written.
    """
    name = lease_name(cluster)
    path = LEASES.path(name, namespace=NAMESPACE)
    try:
        client.patch(path, {"metadata": {"annotations": dict(annotations)}})
    except NotFoundError:
        values = {key: value for key, value in annotations.items() if value is not None}
        if not values:
            return
        metadata = {"name": name, "namespace": NAMESPACE, "annotations": values}
        try:
            client.create(
                LEASES.path(namespace=NAMESPACE),
                {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata},
            )
        except AlreadyExistsError:
            client.patch(path, {"metadata": {"annotations": dict(annotations)}})


def _annotations(client: Client, cluster: str) -> Mapping[str, str]:
    try:
        lease = client.get(LEASES.path(lease_name(cluster), namespace=NAMESPACE))
    except NotFoundError:
        return {}
    return msgspec.json.decode(lease, type=LeaseObject).metadata.annotations
