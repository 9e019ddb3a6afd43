"""Replacements: what pools could launch now, the claims of planned machines, and their launch."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from shared import aws, host
from shared.cluster.connect import describe
from shared.instances import store, unavailable
from shared.launch import supply
from shared.lifecycle import claims as claim_making
from shared.provisioning.launching import Launching

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from functions.disruption.settings import DisruptionSettings
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.disruption.command import Action
    from shared.launch.supply import Supply
    from shared.snapshot import Snapshot


class Buying:
    """The tools of one run. AWS is asked once a run, and only if anything may have to be replaced."""

    def __init__(self, settings: DisruptionSettings, client: Client, recorder: Recorder, *, logger: Logger) -> None:
        self._settings = settings
        self._client = client
        self._recorder = recorder
        self._logger = logger
        self._supply: Supply | None = None

    def supply(self, snapshot: Snapshot, *, now: datetime) -> Supply:
        """What the pools could launch now.

        Raises:
            CatalogMissingError: there is nothing to choose from yet.
        """
        if self._supply is None:
            self._supply = supply.gather(
                snapshot.node_pools,
                snapshot.node_classes,
                store.load(aws.s3(), self._settings.catalog_bucket, self._settings.cluster_name, max_age=None),
                describe(aws.eks(), self._settings.cluster_name),
                unavailable=unavailable.current(aws.dynamodb(), self._settings.table_name, now=now),
                default_instance_profile=self._settings.node_instance_profile,
                now=now,
                nodes=snapshot.nodes,
                claims=snapshot.node_claims,
            )
        return self._supply

    def claims(self, action: Action, snapshot: Snapshot, *, id_: str, now: datetime) -> tuple[NodeClaim, ...]:
        """The claims of an action's replacements; their names follow from its id."""
        if not action.replacements:
            return ()
        offers = self.supply(snapshot, now=now)
        pools = {p.name: p for p in snapshot.node_pools}
        return tuple(
            claim_making.claim_for(
                planned,
                pools[planned.node_pool],
                offers.node_classes[planned.node_pool],
                decision=id_,
                name=f"{planned.node_pool}-{_suffix(id_, i)}",
            )
            for i, planned in enumerate(action.replacements)
        )

    def launch(self, claims: Sequence[NodeClaim], snapshot: Snapshot) -> None:
        """Launch what was written; what EC2 has no capacity for is deleted, and the next look puts the action back."""
        if claims:
            Launching(
                client=self._client,
                recorder=self._recorder,
                cluster=describe(aws.eks(), self._settings.cluster_name),
                table=self._settings.table_name,
                logger=self._logger,
            ).launch(claims, self.supply(snapshot, now=host.current().now()))


def _suffix(id_: str, index: int) -> str:
    """Five lower-case letters and digits, as generateName makes them, but the same for the same action."""
    digest = hashlib.sha256(f"{id_}/{index}".encode()).digest()
    return "".join("bcdfghjklmnpqrstvwxz2456789"[b % 27] for b in digest[:5])
