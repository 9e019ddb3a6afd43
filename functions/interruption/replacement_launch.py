"""Launches replacements: the pods of nodes that are leaving are scheduled elsewhere, with all that are pending.

While another function holds the lease, the decision is tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from shared.base.struct import Struct
from shared.cluster.errors import ApiError
from shared.cluster.lease import LeaseHeldError, LeaseLostError
from shared.instance_types.catalog_store import CatalogMissingError
from shared.termination import delayed_eviction

if TYPE_CHECKING:
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from functions.interruption.batch import Report
    from shared.base.runtime import Runtime
    from shared.provisioning.launch_records import ProvisioningReport
    from shared.provisioning.provisioner import Provisioner
    from shared.termination.delayed_eviction import DelayedPods

_LEASE_ATTEMPTS = 8
_LEASE_RETRY_SECONDS = 0.5
"""Decisions take a few seconds at most. After that the message is redelivered; the drains start without a decision."""


class ReplacementLaunch(Struct, kw_only=True):
    """The launches of one invocation. ``until``: no further round is started that couldn't end by it."""

    provisioner: Provisioner
    until: datetime
    runtime: Runtime
    report: Report
    logger: Logger

    def launch(self, leaving: frozenset[str]) -> ProvisioningReport | None:
        """Schedule the pods of those nodes elsewhere and launch NodeClaims for them; None: failed, try again."""
        for _ in range(_LEASE_ATTEMPTS):
            try:
                provisioned = self.provisioner.run(leaving=leaving, until=self.until)
            except (LeaseHeldError, LeaseLostError) as error:
                if self.runtime.now() >= self.until:
                    break
                self.logger.info("Waiting for the lease", extra={"why": str(error)})
                self.runtime.sleep(_LEASE_RETRY_SECONDS)
                continue
            except (ApiError, BotoCoreError, CatalogMissingError, ClientError) as error:
                self.logger.warning(
                    "Launching replacements failed and is tried again",
                    extra={"error": type(error).__name__, "why": str(error)},
                )
                return None
            self.report["launched"] += len(provisioned.launched)
            return provisioned
        self.logger.info("Launching replacements is tried again later: the lease is held")
        return None


def delayed_pods(provisioned: ProvisioningReport, nodes: frozenset[str]) -> dict[str, DelayedPods]:
    """By node, the pods that wait for a replacement."""
    pods = provisioned.snapshot.pods if provisioned.snapshot is not None else ()
    return delayed_eviction.delayed_by_node(
        pods, nodes, arriving=provisioned.nominated_claims, unplaced=provisioned.unschedulable
    )
