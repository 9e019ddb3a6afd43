"""Replacements: what pools could launch now, the claims of planned machines, and their launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError
from msgspec.structs import replace

from shared import aws, runtime
from shared.api import labels as names
from shared.instance_types import catalog_store
from shared.instance_types.catalog_store import CatalogMissingError
from shared.launch.ec2_cloud_provider import EC2CloudProvider
from shared.provisioning.launching import Launcher
from shared.provisioning.nodeclaim_creation import new_node_claims

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from functions.disruption.settings import DisruptionSettings
    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import ResolvedNodePools
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.disruption.command import Command
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.snapshot import Snapshot


class Buying:
    """The tools of one run. AWS is asked once a run, and only if anything may have to be replaced."""

    def __init__(self, settings: DisruptionSettings, client: Client, recorder: Recorder, *, logger: Logger) -> None:
        self._settings = settings
        self._client = client
        self._recorder = recorder
        self._logger = logger
        self._resolved_pools: ResolvedNodePools | None = None

    def resolved_pools(self, snapshot: Snapshot, *, now: datetime) -> ResolvedNodePools:
        """What the pools could launch now.

        Raises:
            CatalogMissingError: there is nothing to choose from yet.
        """
        if self._resolved_pools is None:
            catalog = catalog_store.load(
                aws.s3(), self._settings.catalog_bucket, self._settings.cluster_name, max_age=None
            )
            self._resolved_pools = self._cloud_provider(catalog).list_instance_types(snapshot, now=now)
        return self._resolved_pools

    def worth(self, action: Command, snapshot: Snapshot) -> float:
        """What an action without replacements saves, USD per hour; 0 while nobody knows prices.

        Empty nodes go whether or not AWS answers, so this asks for nothing but the stored catalog.
        """
        try:
            catalog = catalog_store.load(
                aws.s3(), self._settings.catalog_bucket, self._settings.cluster_name, max_age=None
            )
        except (CatalogMissingError, BotoCoreError, ClientError) as error:
            self._logger.warning("What an action saves is not known", extra={"why": str(error)})
            return 0.0
        going = {removal.claim for removal in action.removals}
        return sum(catalog.price(c.metadata.labels) or 0.0 for c in snapshot.node_claims if c.name in going)

    def claims(self, action: Command, snapshot: Snapshot, *, id_: str, now: datetime) -> tuple[NodeClaim, ...]:
        """The claims of an action's replacements, which say what they are; their names follow from its id."""
        if not action.replacements:
            return ()
        made = new_node_claims(action.replacements, snapshot, self.resolved_pools(snapshot, now=now), decision=id_)
        return tuple(
            replace(c, metadata=replace(c.metadata, annotations={**c.metadata.annotations, names.REPLACES: id_}))
            for c in made
        )

    def launch(self, claims: Sequence[NodeClaim], snapshot: Snapshot) -> None:
        """Launch what was written; what EC2 has no capacity for is deleted, and the next look puts the action back."""
        if claims:
            Launcher(
                client=self._client,
                recorder=self._recorder,
                cloud_provider=self._cloud_provider(),
                logger=self._logger,
            ).launch(claims, self.resolved_pools(snapshot, now=runtime.current().now()))

    def _cloud_provider(self, catalog: InstanceTypeCatalog | None = None) -> EC2CloudProvider:
        return EC2CloudProvider(
            cluster_name=self._settings.cluster_name,
            table_name=self._settings.table_name,
            default_instance_profile=self._settings.node_instance_profile,
            catalog=catalog,
        )
