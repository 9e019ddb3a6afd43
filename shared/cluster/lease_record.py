"""A small record that functions keep in the cluster: a text in an annotation of a Lease of its own.

The functions that decide may create, get and patch Leases of this namespace anyway, so a record needs no further right,
and nothing of it leaves the cluster. It may be lost at any time. Concurrent writers don't overwrite each other unseen:
every write names the resourceVersion that was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.base.struct import WireStruct
from shared.cluster.errors import AlreadyExistsError, ConflictError, NotFoundError
from shared.cluster.lease import NAMESPACE, lease_name, read_lease
from shared.cluster.resources import LEASES

if TYPE_CHECKING:
    from shared.cluster.client import Client

ANNOTATION = "tenon.sh/record"
MAX_BYTES = 200_000
"""Longer texts aren't written: an object may have 262,144 bytes of annotations."""


class LeaseRecord(WireStruct, kw_only=True):
    """The Lease ``namespace/name``, its text ("" without one), and the resourceVersion ("" if it doesn't exist)."""

    name: str
    text: str = ""
    version: str = ""

    def __str__(self) -> str:
        """The Lease's kind, namespace and name, for log lines."""
        return f"Lease {NAMESPACE}/{self.name}"


def read(client: Client, *, cluster: str, record: str) -> LeaseRecord:
    """The record of that name.

    Raises:
        ApiError: the API server can't be read.
    """
    name = f"{lease_name(cluster)}-{record}"
    lease = read_lease(client, name)
    if lease is None:
        return LeaseRecord(name=name)
    return LeaseRecord(
        name=name, text=lease.metadata.annotations.get(ANNOTATION, ""), version=lease.metadata.resource_version
    )


def write(client: Client, record: LeaseRecord, text: str) -> bool:
    """Replace the text; False if another writer was first, or if the text is too long.

    Raises:
        ApiError: the API server can't be written.
    """
    if len(text.encode()) > MAX_BYTES:
        return False
    try:
        if record.version:
            metadata = {"resourceVersion": record.version, "annotations": {ANNOTATION: text}}
            client.patch(LEASES.path(record.name, namespace=NAMESPACE), {"metadata": metadata})
        else:
            metadata = {"name": record.name, "namespace": NAMESPACE, "annotations": {ANNOTATION: text}}
            lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata}
            client.create(LEASES.path(namespace=NAMESPACE), lease)
    except (AlreadyExistsError, ConflictError, NotFoundError):
        return False
    return True
