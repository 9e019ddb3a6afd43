"""One run of provisioning: decide and launch, again while EC2 has no capacity somewhere.

The provisioner runs it for pending pods, the interruption function for those of machines that are being taken back;
both answer everything that waits, so whoever comes first does the work. Offerings without capacity are remembered, and
the pods planned again at once without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared import aws, hints, host
from shared.cluster.connect import connect, describe
from shared.cluster.events import recorder
from shared.instances import store
from shared.instances.store import CatalogMissingError
from shared.launch.fleet import Failed, Launched
from shared.provisioning.deciding import Deciding
from shared.provisioning.launching import Launching
from shared.provisioning.report import Report

if TYPE_CHECKING:
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from shared.instances.catalog import RawCatalog
    from shared.provisioning.deciding import Decided
    from shared.provisioning.settings import ProvisioningSettings

ROUNDS = 3
"""Times that pods are planned again in one run when EC2 has no capacity; after that the next hint goes on."""
_TOLD = 100
"""Pods that are told something in one run; the rest is told by the next."""


class Provisioning:
    """One run: the tools it works with, and its steps. ``by`` is the function's name, ``run`` its request's id."""

    def __init__(self, settings: ProvisioningSettings, *, by: str, run: str, logger: Logger) -> None:
        self._settings = settings
        self._holder = f"{by}/{run}"
        self._run = run
        self._logger = logger
        self._client = connect(settings)
        self._recorder = recorder(self._client)

    def run(self, *, leaving: frozenset[str] = frozenset(), until: datetime | None = None) -> Report:
        """Plan and launch for what is pending and for the pods of ``leaving`` nodes (by name).

        No round is begun after ``until``, but for the first.

        Raises:
            CatalogMissingError: there is nothing to choose from yet; the catalog function has been asked for it.
            LeaseHeldError: another function is deciding.
            LeaseLostError: this one took too long to decide.
        """
        report = Report()
        cluster = describe(aws.eks(), self._settings.cluster_name)
        deciding = Deciding(
            client=self._client,
            settings=self._settings,
            cluster=cluster,
            raw=self._catalog(),
            holder=self._holder,
            run=self._run,
            logger=self._logger,
        )
        launching = Launching(
            client=self._client,
            recorder=self._recorder,
            cluster=cluster,
            table=self._settings.table_name,
            logger=self._logger,
        )
        for attempt in range(ROUNDS):
            decided = deciding.decide(attempt, leaving)
            self._tell(decided)
            claims = (*decided.waiting, *decided.created)
            results = launching.launch(claims, decided.offers)
            launched = [r for r in results if isinstance(r, Launched)]
            failed = [r for r in results if isinstance(r, Failed)]
            report.claims_created += len(decided.created)
            report.launched += launched
            report.failed += failed
            report.unplaced = frozenset(decided.decision.errors)
            report.unfilled = frozenset(c.name for c in claims) - {r.claim_name for r in launched}
            if not any(f.kind == "capacity" for f in failed):
                break
            if until is not None and host.current().now() >= until:
                break
        return report

    def _catalog(self) -> RawCatalog:
        try:
            return store.load(aws.s3(), self._settings.catalog_bucket, self._settings.cluster_name, max_age=None)
        except CatalogMissingError:
            missing = hints.entry(
                hints.CATALOG_MISSING,
                cluster=self._settings.cluster_name,
                keys=(),
                time=host.current().now(),
                bus=self._settings.event_bus_name,
            )
            aws.events().put_events(Entries=[missing])
            raise

    def _tell(self, decided: Decided) -> None:
        """Say on each pod that waits why it has no place; those that still run are told once they don't."""
        pods = {p.key: p for p in decided.snapshot.pods}
        for key, refusal in sorted(decided.decision.errors.items())[:_TOLD]:
            pod = pods.get(key)
            if pod is None or pod.spec.node_name:
                continue
            self._recorder.record(pod.ref, "Warning", "FailedScheduling", refusal.message)
            self._logger.warning("A pod can't be placed", extra={"pod": key, "why": refusal.message})
