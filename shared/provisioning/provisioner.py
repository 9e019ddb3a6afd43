"""Provisions nodes: schedules pending pods, launches NodeClaims, and retries after insufficient capacity.

The provisioner function runs it for pending pods, the interruption function for pods of interrupted nodes. Each run
handles everything that is pending, so whichever starts first does the work. When EC2 has insufficient capacity, the
offerings are remembered as unavailable, and the pods are scheduled again at once without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from shared.base import aws, decision_log, hints, runtime
from shared.cloud_provider import LaunchFailure
from shared.cluster.connect import connect
from shared.cluster.events import recorder
from shared.instance_types import catalog_store
from shared.instance_types.catalog_store import CatalogMissingError
from shared.instance_types.overlays import node_price
from shared.launch.ec2_cloud_provider import EC2CloudProvider
from shared.provisioning.launch_records import ProvisioningReport, record_launches, report_events
from shared.provisioning.launching import Launcher
from shared.provisioning.pipeline import schedule_round
from shared.provisioning.round import Provisioning

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from shared.base.decision_log import LaunchRecord
    from shared.base.settings import ProvisioningSettings
    from shared.cloud_provider import CloudProvider
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.provisioning.round import Round

MAX_ROUNDS = 3
"""How often one run schedules pods while EC2 has insufficient capacity; the next run continues."""


def provisioner_of(settings: ProvisioningSettings, *, by: str, run: str, logger: Logger) -> Provisioner:
    """The provisioner of an invocation, with its process's clock and clients.

    ``by`` is the function's name, ``run`` its request's id.
    """
    client = connect(settings)
    return Provisioner(
        settings=settings,
        by=by,
        run_id=run,
        logger=logger,
        client=client,
        recorder=recorder(client),
        clock=runtime.now,
        load_catalog=partial(_load_catalog, settings),
        cloud_provider=partial(EC2CloudProvider.launching, settings),
        put_launches=partial(_put_launches, settings.table_name),
    )


@dataclass(frozen=True, kw_only=True)
class Provisioner:
    """One run. ``cloud_provider`` launches from the catalog; ``put_launches`` writes to the decision log."""

    settings: ProvisioningSettings
    by: str
    run_id: str
    logger: Logger
    client: Client
    recorder: Recorder
    clock: Callable[[], datetime]
    load_catalog: Callable[[], InstanceTypeCatalog]
    cloud_provider: Callable[[InstanceTypeCatalog], CloudProvider]
    put_launches: Callable[[LaunchRecord], None]

    def run(
        self, *, leaving: frozenset[str] = frozenset(), until: datetime | None = None, sweep: bool = False
    ) -> ProvisioningReport:
        """Schedule pending pods and those of ``leaving`` nodes (by name), and launch the NodeClaims they need.

        After ``until`` no round is started, except the first. A ``sweep`` looks first whether there is anything to do.

        Raises:
            CatalogMissingError: there is no instance type catalog yet; the catalog function is asked to write it.
            LeaseHeldError: another function is deciding.
            LeaseLostError: this one took too long to decide.
        """
        report = ProvisioningReport()
        catalog = self.load_catalog()
        if sweep and self._is_idle():
            return report
        provisioning = self._provisioning(catalog)
        launcher = Launcher(
            client=self.client,
            recorder=self.recorder,
            cloud_provider=provisioning.cloud_provider,
            logger=self.logger,
            clock=self.clock,
        )
        for attempt in range(MAX_ROUNDS):
            round_ = schedule_round(provisioning, attempt, leaving)
            report_events(round_, self.recorder, self.logger)
            claims = (*round_.unlaunched, *round_.created)
            results = launcher.launch(claims, round_.resolved_pools, round_.snapshot.node_classes)
            provisioning.unusable_standbys.update(r.claim_name for r in results if isinstance(r, LaunchFailure))
            report.add_round(round_, results, now=self.clock())
            record_launches(
                round_.created,
                results,
                self.put_launches,
                pods=round_.nominated_claims,
                before=_price_before(round_, catalog),
                now=self.clock(),
                logger=self.logger,
            )
            if not any(isinstance(r, LaunchFailure) and r.kind == "capacity" for r in results):
                break
            if until is not None and self.clock() >= until:
                break
        return report

    def _provisioning(self, catalog: InstanceTypeCatalog) -> Provisioning:
        return Provisioning(
            client=self.client,
            recorder=self.recorder,
            settings=self.settings,
            cloud_provider=self.cloud_provider(catalog),
            catalog=catalog,
            run=self.run_id,
            by=self.by,
            logger=self.logger,
            clock=self.clock,
        )

    def _is_idle(self) -> bool:
        """Whether there is nothing to provision; node groups are looked at each minute."""
        if self.settings.node_groups == "on":
            return False
        # Imported here: a hint about a pod needs no look.
        from shared.provisioning.idle import is_idle  # noqa: PLC0415

        return is_idle(self.client)


def _price_before(round_: Round, catalog: InstanceTypeCatalog) -> float:
    """USD per hour of the nodes that existed and stay."""
    remaining = [n for n in round_.snapshot.nodes if n.metadata.name not in round_.leaving]
    return sum(node_price(catalog, n.metadata.labels, round_.resolved_pools.overlays) or 0.0 for n in remaining)


def _put_launches(table: str, record: LaunchRecord) -> None:
    """Write to the decision log; its client is created here, because most runs launch nothing."""
    decision_log.put_launches(aws.dynamodb(), table, record)


def _load_catalog(settings: ProvisioningSettings) -> InstanceTypeCatalog:
    """The instance type catalog; if there is none, the catalog function is asked to write it.

    Raises:
        CatalogMissingError: there is none yet.
    """
    try:
        return catalog_store.load(aws.s3(), settings.catalog_bucket, max_age=None)
    except CatalogMissingError:
        entry = hints.put_events_entry(
            hints.CATALOG_MISSING,
            cluster=settings.cluster_name,
            keys=(),
            time=runtime.now(),
            bus=settings.event_bus_name,
        )
        aws.events().put_events(Entries=[entry])
        raise
