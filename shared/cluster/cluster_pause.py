"""What the Lease under which decisions are made says to them: the cluster's pause, zones shifted away, the last hour.

Whoever decides acquires that Lease, so that costs no request. Writing it changes the Lease's resourceVersion, so a
decision that is being made at that moment is not written (:meth:`shared.cluster.lease.Lease.check`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shared.api.hourly_limits import read_last_hour
from shared.api.pause import Pause, read_pause
from shared.api.zonal_shift import current_shifts
from shared.base.struct import Struct, with_fields
from shared.cluster.errors import AlreadyExistsError, ApiError, NotFoundError
from shared.cluster.lease import NAMESPACE, lease_name, read_lease
from shared.cluster.resources import LEASES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from shared.api.hourly_limits import LastHour
    from shared.cluster.client import Client
    from shared.snapshot import Snapshot


class LeaseState(Struct, kw_only=True):
    """What the annotations of the cluster's Lease say to decisions."""

    pause: Pause | None = None
    shifted_zones: Mapping[str, datetime] = {}
    last_hour: LastHour = {}

    def on(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with what the Lease says."""
        return with_fields(snapshot, pause=self.pause, shifted_zones=self.shifted_zones, last_hour=self.last_hour)


def lease_state(client: Client, *, cluster: str, now: datetime) -> LeaseState:
    """What the Lease says, for those that don't hold it; one that can't be read counts as a pause."""
    try:
        annotations = lease_annotations(client, cluster=cluster)
    except (ApiError, msgspec.MsgspecError) as error:
        problem = f"Lease {NAMESPACE}/{lease_name(cluster)} can't be read, so it may be paused: {error}"
        return LeaseState(pause=Pause(problem=problem))
    return state_of(annotations, now=now)


def state_of(annotations: Mapping[str, str], *, now: datetime) -> LeaseState:
    """What these annotations of the Lease say now."""
    return LeaseState(
        pause=read_pause(annotations, now=now),
        shifted_zones=current_shifts(annotations, now=now),
        last_hour=read_last_hour(annotations, now=now),
    )


def stored_pause(client: Client, *, cluster: str, now: datetime) -> Pause | None:
    """The cluster's pause.

    Raises:
        ApiError: the Lease can't be read.
    """
    return read_pause(lease_annotations(client, cluster=cluster), now=now)


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


def lease_annotations(client: Client, *, cluster: str) -> Mapping[str, str]:
    """The annotations of the cluster's Lease; none if it doesn't exist yet.

    Raises:
        ApiError: the Lease can't be read.
    """
    lease = read_lease(client, lease_name(cluster))
    return lease.metadata.annotations if lease is not None else {}
