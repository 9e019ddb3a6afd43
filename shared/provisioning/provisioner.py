"""One run of provisioning: decide and launch, again while EC2 has no capacity somewhere.

The provisioner runs it for pending pods, the interruption function for those of machines that are being taken back;
both answer everything that waits, so whoever comes first does the work. Offerings without capacity are remembered, and
the pods planned again at once without them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared import aws, hints, runtime
from shared.api.pods import waited
from shared.cloud_provider import LaunchedInstance, LaunchFailure
from shared.cluster.connect import connect
from shared.cluster.events import recorder
from shared.instance_types import catalog_store
from shared.instance_types.catalog_store import CatalogMissingError
from shared.launch.ec2_cloud_provider import EC2CloudProvider
from shared.provisioning.launching import Launcher
from shared.provisioning.leased_scheduling import LeasedScheduler

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.provisioning.leased_scheduling import ScheduledRound
    from shared.settings import ProvisioningSettings
    from shared.snapshot import Snapshot

MAX_ROUNDS = 3
"""Times that pods are planned again in one run when EC2 has no capacity; after that the next hint goes on."""
_TOLD = 100
"""Pods that are told something in one run; the rest is told by the next."""


@dataclass(kw_only=True)
class ProvisioningReport:
    """``unplaced`` are the pods (namespace/name) that the last decision found no place for.

    ``unfilled`` are claims of the last round that wait for an instance, or that EC2 refused one. ``arriving`` has the
    claim's name for each pod that it placed on a machine that is still to come; ``seen`` is the cluster as it saw it.
    ``decision_seconds`` is the slowest decision, ``slowest_claim`` the longest wait of a pod for its claim (s).
    """

    claims_created: int = 0
    decision_seconds: float = 0.0
    longest_pod_wait: float | None = None
    launched: list[LaunchedInstance] = field(default_factory=list)
    failed: list[LaunchFailure] = field(default_factory=list)
    unschedulable: frozenset[str] = frozenset()
    unlaunched: frozenset[str] = frozenset()
    nominated_claims: Mapping[str, str] = field(default_factory=dict)
    snapshot: Snapshot | None = None

    @property
    def throttled(self) -> bool:
        """Whether EC2 asked to wait: whoever woke us should come back."""
        return any(f.kind == "throttled" for f in self.failed)


class Provisioner:
    """One run: the tools it works with, and its steps. ``by`` is the function's name, ``run`` its request's id."""

    def __init__(self, settings: ProvisioningSettings, *, by: str, run: str, logger: Logger) -> None:
        self._settings = settings
        self._holder = f"{by}/{run}"
        self._run = run
        self._logger = logger
        self._client = connect(settings)
        self._recorder = recorder(self._client)

    def run(self, *, leaving: frozenset[str] = frozenset(), until: datetime | None = None) -> ProvisioningReport:
        """Plan and launch for what is pending and for the pods of ``leaving`` nodes (by name).

        No round is begun after ``until``, but for the first.

        Raises:
            CatalogMissingError: there is nothing to choose from yet; the catalog function has been asked for it.
            LeaseHeldError: another function is deciding.
            LeaseLostError: this one took too long to decide.
        """
        report = ProvisioningReport()
        cloud_provider = EC2CloudProvider(
            cluster_name=self._settings.cluster_name,
            table_name=self._settings.table_name,
            default_instance_profile=self._settings.node_instance_profile,
            catalog=self._catalog(),
        )
        deciding = LeasedScheduler(
            client=self._client,
            settings=self._settings,
            cloud_provider=cloud_provider,
            holder=self._holder,
            run=self._run,
            logger=self._logger,
        )
        launching = Launcher(
            client=self._client,
            recorder=self._recorder,
            cloud_provider=cloud_provider,
            logger=self._logger,
        )
        for attempt in range(MAX_ROUNDS):
            decided = deciding.schedule(attempt, leaving)
            self._tell(decided)
            claims = (*decided.unlaunched, *decided.created)
            results = launching.launch(claims, decided.resolved_pools)
            launched = [r for r in results if isinstance(r, LaunchedInstance)]
            failed = [r for r in results if isinstance(r, LaunchFailure)]
            report.claims_created += len(decided.created)
            report.decision_seconds = max(report.decision_seconds, decided.decision.stats.get("seconds", 0.0))
            if decided.created:
                report.longest_pod_wait = max(
                    report.longest_pod_wait or 0.0, _longest_wait(decided, runtime.current().now())
                )
            report.launched += launched
            report.failed += failed
            report.unschedulable = frozenset(decided.decision.pod_errors)
            report.nominated_claims, report.snapshot = decided.nominated_claims, decided.snapshot
            report.unlaunched = frozenset(c.name for c in claims) - {r.claim_name for r in launched}
            if not any(f.kind == "capacity" for f in failed):
                break
            if until is not None and runtime.current().now() >= until:
                break
        return report

    def _catalog(self) -> InstanceTypeCatalog:
        try:
            return catalog_store.load(
                aws.s3(), self._settings.catalog_bucket, self._settings.cluster_name, max_age=None
            )
        except CatalogMissingError:
            missing = hints.put_events_entry(
                hints.CATALOG_MISSING,
                cluster=self._settings.cluster_name,
                keys=(),
                time=runtime.current().now(),
                bus=self._settings.event_bus_name,
            )
            aws.events().put_events(Entries=[missing])
            raise

    def _tell(self, decided: ScheduledRound) -> None:
        """Say on pools why they lack nodes, and on pods that wait why they have no place, not while they still run."""
        for pool in decided.snapshot.node_pools if decided.missing_replicas else ():
            if lack := decided.missing_replicas.get(pool.name):
                self._recorder.record(pool.ref, "Warning", "ReplicasMissing", lack)
                self._logger.warning("A static pool lacks nodes", extra={"nodepool": pool.name, "why": lack})
        told = dict(sorted({**decided.recently_unavailable, **decided.decision.pod_errors}.items())[:_TOLD])
        pods = {p.key: p for p in decided.snapshot.pods if not p.spec.node_name} if told else {}
        for key, refusal in told.items():
            pod = pods.get(key)
            if pod is None:
                continue
            self._recorder.record(pod.ref, "Warning", "FailedScheduling", refusal.message)
            self._logger.warning("A pod can't be placed", extra={"pod": key, "why": refusal.message})


def _longest_wait(decided: ScheduledRound, now: datetime) -> float:
    """How long the pods had been waiting that machines are bought for, the longest of them, in seconds."""
    bought = {key for claim in decided.decision.new_node_claims for key in claim.pods}
    return max((waited(p, now=now) for p in decided.snapshot.pods if p.key in bought), default=0.0)
