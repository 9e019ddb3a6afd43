"""The environment variables of the catalog function."""

from __future__ import annotations

import json

from shared.base.settings import CommitmentSettings


class CatalogSettings(CommitmentSettings, frozen=True, kw_only=True):
    """The bucket of the catalog.

    The catalog function of a fleet has no ``cluster_name``, but the ``clusters``, a list in JSON, the table with their
    last sweeps, and the queue of undelivered events.
    """

    cluster_name: str = ""
    catalog_bucket: str
    clusters: str = "[]"
    sweeps_table: str = ""
    undelivered_queue_url: str = ""

    @property
    def members(self) -> tuple[str, ...]:
        """The clusters of the fleet; without a fleet, the cluster."""
        return tuple(json.loads(self.clusters)) or (self.cluster_name,)
