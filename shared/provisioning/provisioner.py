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

from msgspec.structs import asdict, replace

from shared import aws, hints, parallel, runtime
from shared.api import labels as names
from shared.api.meta import EventReason
from shared.cloud_provider import LaunchFailure
from shared.cluster import resources, writes
from shared.cluster.connect import connect
from shared.cluster.events import recorder
from shared.cluster.lease import hold
from shared.cluster.snapshot_reader import read_snapshot
from shared.disruption.disruption_queue import replaced_claims
from shared.instance_types import catalog_store
from shared.instance_types.catalog_store import CatalogMissingError
from shared.launch.ec2_cloud_provider import EC2CloudProvider
from shared.provisioning.displaced_pods import SETTLING_SECONDS, brake_for
from shared.provisioning.launch_records import ProvisioningReport, ScheduledRound, longest_pod_wait, record_launches
from shared.provisioning.launching import Launcher, add_planned_pods, is_unlaunched
from shared.provisioning.nodeclaim_creation import batch_launches, new_node_claims, one_on_trial
from shared.provisioning.standalone_claims import with_standalone_pools
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule
from shared.scheduling.static_pools import missing_replicas

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import CloudProvider, ResolvedNodePools
    from shared.cluster.client import Client
    from shared.cluster.lease import Lease
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.provisioning.standby_nodes import StandbyNodes
    from shared.scheduling.decision import Decision, PlannedNodeClaim, UnschedulableReason
    from shared.scheduling.state.displacements import Brake
    from shared.settings import ProvisioningSettings
    from shared.snapshot import Snapshot


MAX_ROUNDS = 3
"""How often one run schedules pods while EC2 has insufficient capacity; the next run continues."""
_MAX_EVENTS = 100
"""How many unschedulable pods get an event in one run; the next run continues."""


@dataclass(frozen=True, kw_only=True)
class LeasedScheduler:
    """The scheduler of one run. ``holder`` is the lease's holder; ``run`` is the id that NodeClaims' names follow."""

    client: Client
    settings: ProvisioningSettings
    cloud_provider: CloudProvider
    holder: str
    run: str
    logger: Logger
    buys_standbys: bool = False
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
        with hold(self.client, cluster=self.settings.cluster_name, holder=self.holder, now=clock) as lease:
            snapshot = read_snapshot(self.client, now=now, leaving=leaving)
            standby_nodes = self._standby_nodes(snapshot)
            if standby_nodes is not None:
                snapshot = standby_nodes.hidden
            resolved_pools = self._resolved_pools(snapshot, now)
            replicas, missing = self._create_replicas(lease, snapshot, resolved_pools, attempt)
            if replicas:
                snapshot = with_fields(snapshot, node_claims=(*snapshot.node_claims, *replicas))
            decision, resolved_pools, recently_unavailable = self._decide(snapshot, resolved_pools, leaving, now)
            brake = self._brake(decision, snapshot, now)
            base = snapshot if brake is None else brake.snapshot
            if brake is not None:
                decision, resolved_pools, recently_unavailable = self._decide(base, resolved_pools, leaving, now)
            schedule = partial(_schedule, resolved_pools=resolved_pools, leaving=leaving)
            if standby_nodes is not None:
                decision = standby_nodes.use(decision, base, schedule, resolved_pools.instance_types)
            if brake is not None:
                decision = replace(decision, pod_errors={**decision.pod_errors, **brake.refused})
            lease.check()
            planned = one_on_trial(
                batch_launches(decision, snapshot, resolved_pools), snapshot.node_claims, resolved_pools.on_trial
            )
            prices = {c.pods + c.chunks: c.cheapest.price for c in decision.new_node_claims}
            decision_id = f"{self.run}/{attempt}"
            starting, bought, missing_standbys = self._start_and_buy(
                standby_nodes, decision, resolved_pools, decision_id=decision_id, buy=attempt == 0, now=now
            )
            snapshot = with_fields(snapshot, node_claims=(*snapshot.node_claims, *starting))
            claims = self._create_node_claims(planned, snapshot, resolved_pools, decision=decision_id, prices=prices)
            add_planned_pods(self.client, decision, snapshot)
        created = (*replicas, *bought, *claims)
        created_names = {c.name for c in created}
        return ScheduledRound(
            decision=decision,
            snapshot=snapshot,
            resolved_pools=resolved_pools,
            created=created,
            unlaunched=tuple(c for c in snapshot.node_claims if is_unlaunched(c) and c.name not in created_names),
            nominated_claims=_nominated_claims(decision, snapshot)
            | {pod: claim.name for p, claim in zip(planned, claims, strict=True) for pod in p.pods},
            missing_replicas=missing,
            missing_standbys=missing_standbys,
            recently_unavailable=recently_unavailable,
        )

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
        from shared.provisioning.standby_nodes import StandbyNodes  # noqa: PLC0415

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

    def _decide(
        self, snapshot: Snapshot, resolved_pools: ResolvedNodePools, leaving: frozenset[str], now: datetime
    ) -> tuple[Decision, ResolvedNodePools, Mapping[str, UnschedulableReason]]:
        """The decision, the pools it was made with, and why pods were unschedulable before a second attempt.

        If pods are unschedulable, it tries again with offerings that had no capacity some time ago.
        """
        decision = _schedule(snapshot, resolved_pools, leaving)
        if not decision.pod_errors:
            return decision, resolved_pools, {}
        retried_pools = self._resolved_pools(snapshot, now, only_recently_unavailable=True)
        if retried_pools == resolved_pools:
            return decision, resolved_pools, {}
        retried = _schedule(snapshot, retried_pools, leaving)
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
        if not (buy and self.buys_standbys):
            return starting, (), {}
        from shared.provisioning import standby_purchases  # noqa: PLC0415 (as above)

        snapshot = standby_nodes.after(starting)
        plan = standby_purchases.plan_standbys(snapshot, resolved_pools, enabled=standby_nodes.enabled)
        planned = standby_purchases.reserve(self.client, plan, cluster=self.settings.cluster_name, now=now)
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
        claims = new_node_claims(
            planned,
            snapshot,
            resolved_pools,
            decision=decision,
            prices=prices,
            nominate=self.settings.planned_pods == "nominated",
            standby=standby,
        )

        def create(item: tuple[PlannedNodeClaim, NodeClaim]) -> NodeClaim:
            planned_claim, claim = item
            stored = writes.create(self.client, resources.NODE_CLAIMS, claim)
            self.logger.info(
                "Created a NodeClaim",
                extra={
                    "nodeclaim": stored.name,
                    "nodepool": planned_claim.node_pool,
                    "pods": len(planned_claim.pods),
                    "chunks": len(planned_claim.chunks),
                    "cheapest": asdict(planned_claim.cheapest),
                    "instance_types": len(planned_claim.instance_types),
                },
            )
            return stored

        return tuple(parallel.each(create, zip(planned, claims, strict=True)))


def _schedule(snapshot: Snapshot, resolved_pools: ResolvedNodePools, leaving: frozenset[str]) -> Decision:
    return schedule(
        Problem(
            snapshot=snapshot,
            instance_types=resolved_pools.instance_types,
            not_ready=resolved_pools.not_ready,
            leaving=leaving,
        )
    )


def _nominated_claims(decision: Decision, snapshot: Snapshot) -> dict[str, str]:
    """By pod: the existing NodeClaim without a node that it is expected on."""
    nodes = {n.metadata.name for n in snapshot.nodes}
    return {pod: name for name, pods in decision.existing_nodes.items() if name not in nodes for pod in pods}


class Provisioner:
    """One run. ``by`` is the function's name, ``run`` its request's id."""

    def __init__(self, settings: ProvisioningSettings, *, by: str, run: str, logger: Logger) -> None:
        self._settings = settings
        self._by = by
        self._holder = f"{by}/{run}"
        self._run = run
        self._logger = logger
        self._client = connect(settings)
        self._recorder = recorder(self._client)

    def run(self, *, leaving: frozenset[str] = frozenset(), until: datetime | None = None) -> ProvisioningReport:
        """Schedule pending pods and those of ``leaving`` nodes (by name), and launch the NodeClaims they need.

        After ``until`` no round is started, except the first.

        Raises:
            CatalogMissingError: there is no instance type catalog yet; the catalog function is asked to write it.
            LeaseHeldError: another function is deciding.
            LeaseLostError: this one took too long to decide.
        """
        report = ProvisioningReport()
        catalog = self._catalog()
        cloud_provider = EC2CloudProvider(
            cluster_name=self._settings.cluster_name,
            table_name=self._settings.table_name,
            default_instance_profile=self._settings.node_instance_profile,
            catalog=catalog,
        )
        scheduler = LeasedScheduler(
            client=self._client,
            settings=self._settings,
            cloud_provider=cloud_provider,
            holder=self._holder,
            run=self._run,
            logger=self._logger,
            buys_standbys=self._by == "provisioner",
        )
        launcher = Launcher(
            client=self._client,
            recorder=self._recorder,
            cloud_provider=cloud_provider,
            logger=self._logger,
        )
        for attempt in range(MAX_ROUNDS):
            scheduled = scheduler.schedule(attempt, leaving)
            self._report_pools(scheduled)
            self._report_unschedulable(scheduled)
            claims = (*scheduled.unlaunched, *scheduled.created)
            results = launcher.launch(claims, scheduled.resolved_pools, scheduled.snapshot.node_classes)
            scheduler.unusable_standbys.update(r.claim_name for r in results if isinstance(r, LaunchFailure))
            report.add_round(scheduled, results, now=runtime.current().now())
            before = sum(catalog.price(n.metadata.labels) or 0.0 for n in scheduled.snapshot.nodes)
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

    def _catalog(self) -> InstanceTypeCatalog:
        try:
            return catalog_store.load(
                aws.s3(), self._settings.catalog_bucket, self._settings.cluster_name, max_age=None
            )
        except CatalogMissingError:
            entry = hints.put_events_entry(
                hints.CATALOG_MISSING,
                cluster=self._settings.cluster_name,
                keys=(),
                time=runtime.current().now(),
                bus=self._settings.event_bus_name,
            )
            aws.events().put_events(Entries=[entry])
            raise

    def _report_pools(self, scheduled: ScheduledRound) -> None:
        """Log and record an event on each NodePool whose replicas or standby nodes can't all be launched."""
        missing = {
            EventReason("ReplicasMissing"): scheduled.missing_replicas,
            EventReason("StandbyNotPossible"): scheduled.missing_standbys,
        }
        for pool in scheduled.snapshot.node_pools if any(missing.values()) else ():
            for reason, messages in missing.items():
                if message := messages.get(pool.name):
                    self._recorder.record(pool.ref, "Warning", reason, message)
                    self._logger.warning("A NodePool lacks nodes", extra={"nodepool": pool.name, "why": message})

    def _report_unschedulable(self, scheduled: ScheduledRound) -> None:
        """Log and record an event on each unschedulable pod; not on pods that still run on a leaving node."""
        errors = {**scheduled.recently_unavailable, **scheduled.decision.pod_errors}
        reported = dict(sorted(errors.items())[:_MAX_EVENTS])
        pods = {p.key: p for p in scheduled.snapshot.pods if not p.spec.node_name} if reported else {}
        for key, error in reported.items():
            pod = pods.get(key)
            if pod is None:
                continue
            self._recorder.record(pod.ref, "Warning", "FailedScheduling", error.message)
            self._logger.warning("A pod can't be scheduled", extra={"pod": key, "why": error.message})
