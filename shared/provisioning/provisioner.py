"""Provisions nodes: schedules pending pods, launches NodeClaims, and retries after insufficient capacity.

The provisioner function runs it for pending pods, the interruption function for pods of interrupted nodes. Each run
handles everything that is pending, so whichever starts first does the work. When EC2 has insufficient capacity, the
offerings are remembered as unavailable, and the pods are scheduled again at once without them.

Pending pods are scheduled under the cluster's lease, which also covers the creation of their NodeClaims. If a run dies
after writing, the next run of any function launches the NodeClaims: every round returns those that aren't launched yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shared.api import labels as names
from shared.base import runtime
from shared.cloud_provider import LaunchFailure
from shared.cluster.connect import connect
from shared.cluster.events import recorder
from shared.cluster.lease import hold
from shared.cluster.snapshot_reader import read_snapshot
from shared.disruption.disruption_queue import replaced_claims
from shared.instance_types.overlays import node_price
from shared.launch.ec2_cloud_provider import EC2CloudProvider
from shared.provisioning.displaced_pods import SETTLING_SECONDS, brake_for
from shared.provisioning.launch_records import (
    ProvisioningReport,
    ScheduledRound,
    longest_pod_wait,
    nominated_claims,
    record_launches,
    report_events,
    stored_catalog,
)
from shared.provisioning.launching import Launcher, add_planned_pods, unlaunched_claims
from shared.provisioning.nodeclaim_creation import (
    batch_launches,
    create_node_claims,
    new_node_claims,
    one_on_trial,
)
from shared.provisioning.pool_decision import schedule_with
from shared.provisioning.standalone_claims import with_standalone_pools
from shared.scheduling.static_pools import missing_replicas

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from shared.api.nodeclaim import NodeClaim
    from shared.base.settings import ProvisioningSettings
    from shared.cloud_provider import CloudProvider, ResolvedNodePools
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.cluster.lease import Lease
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.node_groups.group_pools import ScaleUp
    from shared.node_groups.scaling import NodeGroups
    from shared.provisioning.paused_provisioning import PausedProvisioning
    from shared.scheduling.decision import Decision, PlannedNodeClaim, UnschedulableReason
    from shared.scheduling.nominations.displacements import Brake
    from shared.snapshot import Snapshot
    from shared.standby.starting import StandbyNodes


MAX_ROUNDS = 3
"""How often one run schedules pods while EC2 has insufficient capacity; the next run continues."""


@dataclass(frozen=True, kw_only=True)
class LeasedScheduler:
    """The scheduler of one run. ``run`` is its id, which NodeClaims' names follow.

    ``by`` is the function: only the provisioner buys standby nodes, and only interruption launches despite a pause.
    """

    client: Client
    recorder: Recorder
    settings: ProvisioningSettings
    cloud_provider: CloudProvider
    catalog: InstanceTypeCatalog
    run: str
    logger: Logger
    by: str
    unusable_standbys: set[str] = field(default_factory=set)
    """The NodeClaims of standby nodes that couldn't be started in this run."""

    def schedule(self, attempt: int, leaving: frozenset[str]) -> ScheduledRound:
        """Schedule pending pods and those of ``leaving`` nodes (by name), which take no pods.

        Raises:
            LeaseHeldError: another function is deciding.
            LeaseLostError: this one took too long; nothing is written.
        """
        clock = runtime.current().now
        now = clock()
        with hold(self.client, cluster=self.settings.cluster_name, holder=f"{self.by}/{self.run}", now=clock) as lease:
            snapshot = read_snapshot(self.client, now=now, leaving=leaving)
            paused = self._paused(snapshot, lease, leaving)
            if paused is not None:
                snapshot = paused.snapshot
            standby_nodes = self._standby_nodes(snapshot)
            if standby_nodes is not None:
                snapshot = standby_nodes.hidden
            resolved_pools = self._resolved_pools(snapshot, now)
            replicas, missing = self._create_replicas(lease, snapshot, resolved_pools, attempt)
            if replicas:
                snapshot = with_fields(snapshot, node_claims=(*snapshot.node_claims, *replicas))
            node_groups = self._node_groups(snapshot, now) if paused is None else None
            decide = partial(schedule_with if node_groups is None else node_groups.schedule, leaving=leaving)
            decision, resolved_pools, recently_unavailable = self._decide_with_brake(
                snapshot, resolved_pools, decide, standby_nodes, now
            )
            if paused is not None:
                decision = paused.decision(decision)
            lease.check()
            scale_ups: tuple[ScaleUp, ...] = ()
            if node_groups is not None:
                decision, scale_ups = node_groups.scale(decision, now=now)
            planned = batch_launches(decision, snapshot, resolved_pools)
            planned = one_on_trial(planned, snapshot.node_claims, resolved_pools)
            prices = {c.pods + c.chunks: c.cheapest.price for c in decision.new_node_claims}
            decision_id = f"{self.run}/{attempt}"
            starting, bought, missing_standbys = self._start_and_buy(
                standby_nodes, decision, resolved_pools, decision_id=decision_id, buy=attempt == 0, now=now
            )
            snapshot = with_fields(snapshot, node_claims=(*snapshot.node_claims, *starting))
            claims = self._create_node_claims(planned, snapshot, resolved_pools, decision=decision_id, prices=prices)
            add_planned_pods(self.client, decision, snapshot)
        created = (*replicas, *bought, *claims)
        unlaunched = unlaunched_claims(snapshot, created)
        return ScheduledRound(
            decision=decision,
            snapshot=snapshot,
            resolved_pools=resolved_pools,
            created=created,
            unlaunched=unlaunched if paused is None else paused.launchable(unlaunched, decision),
            nominated_claims=nominated_claims(decision, snapshot)
            | {pod: claim.name for p, claim in zip(planned, claims, strict=True) for pod in p.pods},
            missing_replicas=missing,
            missing_standbys=missing_standbys,
            recently_unavailable=recently_unavailable,
            scale_ups=scale_ups,
        )

    def _paused(self, snapshot: Snapshot, lease: Lease, leaving: frozenset[str]) -> PausedProvisioning | None:
        """How to provision while the cluster is paused; None if it isn't."""
        if names.PAUSED not in lease.annotations:
            return None
        from shared.provisioning.paused_provisioning import paused_provisioning  # noqa: PLC0415 (rarely needed)

        forced = leaving if self.by == "interruption" else frozenset[str]()
        return paused_provisioning(snapshot, lease.annotations, forced=forced)

    def _standby_nodes(self, snapshot: Snapshot) -> StandbyNodes | None:
        """The cluster's standby nodes; None if it has none and no NodePool asks for any."""
        annotations = (
            *(claim.metadata.annotations for claim in snapshot.node_claims),
            *(pool.metadata.annotations for pool in snapshot.node_pools),
            *(pool.spec.template.metadata.annotations for pool in snapshot.node_pools),
        )
        if not any(names.STANDBY in own for own in annotations):
            return None
        # Imported here: few clusters have standby nodes.
        from shared.standby.starting import StandbyNodes  # noqa: PLC0415

        return StandbyNodes(
            client=self.client,
            everything=snapshot,
            enabled=self.settings.standby == "on",
            unusable=self.unusable_standbys,
        )

    def _brake(self, decision: Decision, snapshot: Snapshot, now: datetime) -> Brake | None:
        """The brake on launching the same machine again for pods that lost theirs; a first machine has none."""
        if not decision.new_node_claims:
            return None
        if not snapshot.node_claims and longest_pod_wait(decision, snapshot, now) < SETTLING_SECONDS:
            return None
        return brake_for(self.client, snapshot, decision, cluster=self.settings.cluster_name, logger=self.logger)

    def _node_groups(self, snapshot: Snapshot, now: datetime) -> NodeGroups | None:
        """The cluster's node groups; None if the deployment doesn't scale them, or there are none."""
        if self.settings.node_groups != "on":
            return None
        # Imported here: few deployments scale node groups.
        from shared.node_groups.scaling import read_node_groups  # noqa: PLC0415

        return read_node_groups(
            self.client,
            snapshot,
            settings=self.settings,
            catalog=self.catalog,
            recorder=self.recorder,
            logger=self.logger,
            now=now,
        )

    def _decide_with_brake(
        self,
        snapshot: Snapshot,
        resolved_pools: ResolvedNodePools,
        decide: Callable[..., Decision],
        standby_nodes: StandbyNodes | None,
        now: datetime,
    ) -> tuple[Decision, ResolvedNodePools, Mapping[str, UnschedulableReason]]:
        """As :meth:`_decide`, decided again if the brake refuses pods, and with standby nodes in place of new ones."""
        decision, resolved_pools, recently_unavailable = self._decide(snapshot, resolved_pools, decide, now)
        brake = self._brake(decision, snapshot, now)
        if brake is not None:
            snapshot = brake.snapshot
            decision, resolved_pools, recently_unavailable = self._decide(snapshot, resolved_pools, decide, now)
        if standby_nodes is not None:
            schedule = partial(decide, resolved_pools=resolved_pools)
            decision = standby_nodes.use(decision, snapshot, schedule, resolved_pools.launchable_types)
        if brake is not None:
            decision = replace(decision, pod_errors={**decision.pod_errors, **brake.refused})
        return decision, resolved_pools, recently_unavailable

    def _decide(
        self, snapshot: Snapshot, resolved_pools: ResolvedNodePools, decide: Callable[..., Decision], now: datetime
    ) -> tuple[Decision, ResolvedNodePools, Mapping[str, UnschedulableReason]]:
        """The decision, the pools it was made with, and why pods were unschedulable before a second attempt.

        If pods are unschedulable, it tries again with offerings that had no capacity some time ago.
        """
        decision = decide(snapshot, resolved_pools=resolved_pools)
        if not decision.pod_errors:
            return decision, resolved_pools, {}
        retried_pools = self._resolved_pools(snapshot, now, only_recently_unavailable=True)
        if retried_pools == resolved_pools:
            return decision, resolved_pools, {}
        retried = decide(snapshot, resolved_pools=retried_pools)
        if len(retried.pod_errors) >= len(decision.pod_errors):
            return decision, resolved_pools, {}
        resolved_errors = {pod: why for pod, why in decision.pod_errors.items() if pod not in retried.pod_errors}
        return retried, retried_pools, resolved_errors

    def _resolved_pools(
        self, snapshot: Snapshot, now: datetime, *, only_recently_unavailable: bool = False
    ) -> ResolvedNodePools:
        if any(names.NODEPOOL not in claim.metadata.labels for claim in snapshot.node_claims):
            snapshot = with_standalone_pools(snapshot)
        return self.cloud_provider.list_instance_types(
            snapshot, now=now, only_recently_unavailable=only_recently_unavailable
        )

    def _create_replicas(
        self, lease: Lease, snapshot: Snapshot, resolved_pools: ResolvedNodePools, attempt: int
    ) -> tuple[tuple[NodeClaim, ...], Mapping[str, str]]:
        """Create the missing replicas of static pools first, so that pending pods can be scheduled on them."""
        if all(p.spec.replicas is None for p in snapshot.node_pools):
            return (), {}
        replaced = replaced_claims(snapshot.node_claims)
        planned, missing = missing_replicas(snapshot, resolved_pools.instance_types, resolved_pools.not_ready, replaced)
        planned = one_on_trial(planned, snapshot.node_claims, resolved_pools)
        if not planned:
            return (), missing
        lease.check()
        decision = f"{self.run}/{attempt}/static"
        return self._create_node_claims(planned, snapshot, resolved_pools, decision=decision), missing

    def _start_and_buy(
        self,
        standby_nodes: StandbyNodes | None,
        decision: Decision,
        resolved_pools: ResolvedNodePools,
        *,
        decision_id: str,
        buy: bool,
        now: datetime,
    ) -> tuple[tuple[NodeClaim, ...], tuple[NodeClaim, ...], Mapping[str, str]]:
        """The standby nodes to start, the created ones that are missing, and by NodePool why it can't have them."""
        if standby_nodes is None:
            return (), (), {}
        starting = standby_nodes.mark_starting(decision, decision_id=decision_id, now=now)
        if not (buy and self.by == "provisioner"):
            return starting, (), {}
        from shared.standby import purchases  # noqa: PLC0415 (as above)

        snapshot = standby_nodes.after(starting)
        plan = purchases.plan_standbys(snapshot, resolved_pools, enabled=standby_nodes.enabled)
        planned = purchases.reserve(self.client, plan, cluster=self.settings.cluster_name, now=now)
        bought = self._create_node_claims(
            planned, snapshot, resolved_pools, decision=f"{decision_id}/standby", standby=True
        )
        return starting, bought, plan.problems

    def _create_node_claims(
        self,
        planned: Sequence[PlannedNodeClaim],
        snapshot: Snapshot,
        resolved_pools: ResolvedNodePools,
        *,
        decision: str,
        prices: Mapping[tuple[str, ...], float] | None = None,
        standby: bool = False,
    ) -> tuple[NodeClaim, ...]:
        nominate = self.settings.planned_pods == "nominated"
        claims = new_node_claims(
            planned, snapshot, resolved_pools, decision=decision, prices=prices, nominate=nominate, standby=standby
        )
        return create_node_claims(self.client, claims, planned, logger=self.logger)


class Provisioner:
    """One run. ``by`` is the function's name, ``run`` its request's id."""

    def __init__(self, settings: ProvisioningSettings, *, by: str, run: str, logger: Logger) -> None:
        self._settings = settings
        self._by = by
        self._run = run
        self._logger = logger
        self._client = connect(settings)
        self._recorder = recorder(self._client)

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
        catalog = stored_catalog(self._settings)
        if sweep and self._is_idle():
            return report
        cloud_provider = EC2CloudProvider.launching(self._settings, catalog)
        scheduler = LeasedScheduler(
            client=self._client,
            recorder=self._recorder,
            settings=self._settings,
            cloud_provider=cloud_provider,
            catalog=catalog,
            run=self._run,
            logger=self._logger,
            by=self._by,
        )
        launcher = Launcher(
            client=self._client,
            recorder=self._recorder,
            cloud_provider=cloud_provider,
            logger=self._logger,
        )
        for attempt in range(MAX_ROUNDS):
            scheduled = scheduler.schedule(attempt, leaving)
            report_events(scheduled, self._recorder, self._logger)
            claims = (*scheduled.unlaunched, *scheduled.created)
            results = launcher.launch(claims, scheduled.resolved_pools, scheduled.snapshot.node_classes)
            scheduler.unusable_standbys.update(r.claim_name for r in results if isinstance(r, LaunchFailure))
            report.add_round(scheduled, results, now=runtime.current().now())
            remaining = [n for n in scheduled.snapshot.nodes if n.metadata.name not in leaving]
            before = sum(
                node_price(catalog, n.metadata.labels, scheduled.resolved_pools.overlays) or 0.0 for n in remaining
            )
            record_launches(
                scheduled.created,
                results,
                self._settings,
                pods=scheduled.nominated_claims,
                before=before,
                logger=self._logger,
            )
            if not any(isinstance(r, LaunchFailure) and r.kind == "capacity" for r in results):
                break
            if until is not None and runtime.current().now() >= until:
                break
        return report

    def _is_idle(self) -> bool:
        """Whether there is nothing to provision; node groups are looked at each minute."""
        if self._settings.node_groups == "on":
            return False
        # Imported here: a hint about a pod needs no look.
        from shared.provisioning.idle import is_idle  # noqa: PLC0415

        return is_idle(self._client)
