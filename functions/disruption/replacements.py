"""Replacements: which instance types they may be, and the creation and launch of their NodeClaims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from shared.api import labels as names
from shared.api.meta import annotated
from shared.base.struct import with_fields
from shared.instance_types import catalog_store
from shared.instance_types.catalog_store import CatalogMissingError
from shared.instance_types.overlays import node_price, ready_overlays
from shared.provisioning.launching import Launcher
from shared.provisioning.nodeclaim_creation import new_node_claims

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger
    from mypy_boto3_s3 import S3Client

    from functions.disruption.settings import DisruptionSettings
    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import CloudProvider, ResolvedNodePools
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.disruption.command import Command
    from shared.disruption.disruption_state import DisruptionState
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.snapshot import Snapshot


class Replacements:
    """The replacements of one reconcile. AWS is called once, and only if a node may have to be replaced.

    ``cloud_provider`` makes the cloud provider; with a catalog, it lists instance types.
    """

    def __init__(
        self,
        settings: DisruptionSettings,
        *,
        client: Client,
        recorder: Recorder,
        cloud_provider: Callable[[InstanceTypeCatalog | None], CloudProvider],
        s3: Callable[[], S3Client],
        now: Callable[[], datetime],
        logger: Logger,
    ) -> None:
        self._settings = settings
        self._client = client
        self._recorder = recorder
        self._cloud_provider = cloud_provider
        self._s3 = s3
        self._now = now
        self._logger = logger
        self._resolved_pools: ResolvedNodePools | None = None

    def resolved_pools(self, snapshot: Snapshot, *, now: datetime) -> ResolvedNodePools:
        """The instance types and node classes of all pools as AWS has them now.

        Raises:
            CatalogMissingError: the catalog hasn't been written yet.
        """
        if self._resolved_pools is None:
            self._resolved_pools = self._cloud_provider(self._catalog()).list_instance_types(snapshot, now=now)
        return self._resolved_pools

    def with_prices(self, state: DisruptionState) -> DisruptionState | None:
        """The state with instance types and prices; None while there is no catalog."""
        try:
            pools = self.resolved_pools(state.snapshot, now=state.now)
        except CatalogMissingError as error:
            self._logger.warning("Can't replace nodes without an instance type catalog", extra={"why": str(error)})
            return None
        return with_fields(
            state, instance_types=pools.instance_types, not_ready=pools.not_ready, coverage=pools.coverage
        )

    def price_of_removals(self, command: Command, snapshot: Snapshot) -> float:
        """USD per hour of the nodes that a command removes; 0 while prices aren't known.

        Reads only the stored catalog, because empty nodes are removed whether or not AWS answers.
        """
        try:
            catalog = self._catalog()
        except (CatalogMissingError, BotoCoreError, ClientError) as error:
            self._logger.warning("Couldn't compute the savings of a command", extra={"why": str(error)})
            return 0.0
        removed = {removal.claim for removal in command.removals}
        overlays = ready_overlays(snapshot.node_overlays)
        prices = (node_price(catalog, c.metadata.labels, overlays) for c in snapshot.node_claims if c.name in removed)
        return sum(price or 0.0 for price in prices)

    def node_claims(
        self, command: Command, snapshot: Snapshot, *, command_id: str, now: datetime
    ) -> tuple[NodeClaim, ...]:
        """The NodeClaims of a command's replacements, not written yet; their names follow from its id."""
        if not command.replacements:
            return ()
        pools = self.resolved_pools(snapshot, now=now)
        claims = new_node_claims(command.replacements, snapshot, pools, decision=command_id)
        return tuple(with_fields(c, metadata=annotated(c.metadata, {names.REPLACES: command_id})) for c in claims)

    def launch(self, claims: Sequence[NodeClaim], snapshot: Snapshot) -> None:
        """Launch the NodeClaims; those without capacity are deleted, and the next reconcile rolls the command back."""
        if claims:
            Launcher(
                client=self._client,
                recorder=self._recorder,
                cloud_provider=self._cloud_provider(None),
                logger=self._logger,
                clock=self._now,
            ).launch(claims, self.resolved_pools(snapshot, now=self._now()))

    def _catalog(self) -> InstanceTypeCatalog:
        return catalog_store.load(self._s3(), self._settings.catalog_bucket, max_age=None)
