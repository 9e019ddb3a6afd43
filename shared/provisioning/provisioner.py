"""Provisions nodes: schedules pending pods, launches NodeClaims, and retries after insufficient capacity.

The provisioner function runs it for pending pods, the interruption function for pods of interrupted nodes. Each run
handles everything that is pending, so whichever starts first does the work. When EC2 has insufficient capacity, the
offerings are remembered as unavailable, and the pods are scheduled again at once without them.

A round is read, adjusted, decided, adjusted and written under the cluster's lease, which also covers the creation of
the NodeClaims. If a run dies after writing, the next run of any function launches them: every round returns those that
aren't launched yet. A sweep mostly has nothing to provision, and looking costs less than deciding.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.capacity_buffer import CapacityBuffer
from shared.api.pods import is_pending
from shared.base import aws, decision_log, hints, runtime
from shared.base.struct import Struct, with_fields
from shared.cloud_provider import LaunchFailure
from shared.cluster import listing, resources
from shared.cluster.connect import connect
from shared.cluster.events import recorder
from shared.cluster.lease import hold
from shared.cluster.snapshot_reader import cached_reader, list_node_pools, list_provisioning_requests, read_snapshot
from shared.instance_types import catalog_store
from shared.instance_types.catalog_store import CatalogMissingError
from shared.instance_types.overlays import node_price
from shared.launch.ec2_cloud_provider import EC2CloudProvider
from shared.provisioning.features.doors import FEATURES, remember_failed_launches
from shared.provisioning.launch_records import (
    ProvisioningReport,
    nominated_claims,
    record_launches,
    record_nominations,
    report_events,
)
from shared.provisioning.launching import Launcher, add_planned_pods, deleted_claims, unlaunched_claims
from shared.provisioning.nodeclaim_creation import batch_launches, one_on_trial
from shared.provisioning.round import Provisioning, Round, schedule_with

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from shared.api.nodepool import NodePool
    from shared.base.decision_log import LaunchRecord
    from shared.base.settings import ProvisioningSettings
    from shared.cloud_provider import CloudProvider
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.cluster.lease import Lease
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.provisioning.round import Feature

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


class Provisioner(Struct, kw_only=True):
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

        Except the first, no round is started that couldn't end by ``until``, judged by the one before. A ``sweep``
        looks first whether there is anything to do.

        Raises:
            CatalogMissingError: there is no instance type catalog yet; the catalog function is asked to write it.
            LeaseHeldError: another function is deciding.
            LeaseLostError: this one took too long to decide.
        """
        report = ProvisioningReport()
        catalog = self.load_catalog()
        # node groups are looked at each minute
        if sweep and self.settings.node_groups != "on" and _is_idle(self.client):
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
            begun = self.clock()
            round_ = _schedule_round(provisioning, attempt, leaving)
            report_events(round_, self.recorder, self.logger)
            claims = (*round_.unlaunched, *round_.created)
            results = launcher.launch(claims, round_.resolved_pools, round_.snapshot.node_classes)
            record_nominations(round_, results, self.recorder)
            remember_failed_launches(provisioning, round_, deleted_claims(claims, results))
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
            if until is not None and (now := self.clock()) + (now - begun) >= until:
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


# --- a round, under the cluster's lease ---


def _schedule_round(provisioning: Provisioning, attempt: int, leaving: frozenset[str]) -> Round:
    """Schedule pending pods and those of ``leaving`` nodes (by name), which take no pods.

    Raises:
        LeaseHeldError: another function is deciding.
        LeaseLostError: this one took too long; nothing is written.
    """
    cluster, holder = provisioning.settings.cluster_name, f"{provisioning.by}/{provisioning.run}"
    with hold(provisioning.client, cluster=cluster, holder=holder, now=provisioning.clock) as lease:
        round_ = _read(provisioning, lease, attempt, leaving)
        features: list[Feature] = []
        for door in FEATURES:
            if feature := door(provisioning, round_):
                features.insert(0, feature)
                round_ = feature.before(round_)
        round_ = provisioning.decide(round_)
        for feature in features:
            round_ = feature.after(round_)
        lease.check(round_.lease_annotations)
        round_ = with_fields(round_, unlaunched=unlaunched_claims(round_.snapshot.node_claims))
        for feature in features:
            round_ = feature.write(round_)
        return _create_planned(provisioning, round_)


def _read(provisioning: Provisioning, lease: Lease, attempt: int, leaving: frozenset[str]) -> Round:
    now = provisioning.clock()
    return Round(
        lease=lease,
        now=now,
        attempt=attempt,
        leaving=leaving,
        decision_id=f"{provisioning.run}/{attempt}",
        snapshot=read_snapshot(provisioning.client, now=now, leaving=leaving),
        schedule=partial(schedule_with, leaving=leaving),
    )


def _create_planned(provisioning: Provisioning, round_: Round) -> Round:
    """Write the NodeClaims of the decision, and the pods that it adds to nodes on their way."""
    decision, snapshot, pools = round_.decision, round_.snapshot, round_.resolved_pools
    planned = one_on_trial(batch_launches(decision, snapshot, pools), snapshot.node_claims, pools)
    prices = {c.pods + c.chunks: c.cheapest.price for c in decision.new_node_claims}
    claims = provisioning.create_node_claims(planned, round_, decision_id=round_.decision_id, prices=prices)
    add_planned_pods(provisioning.client, decision, snapshot)
    on_new = {pod: claim.name for plan, claim in zip(planned, claims, strict=True) for pod in plan.pods}
    created = (*round_.created, *claims)
    return with_fields(
        round_,
        created=created,
        unlaunched=unlaunched_claims(round_.unlaunched, created),
        nominated_claims={**nominated_claims(decision, snapshot), **on_new},
    )


# --- sweeps ---


def _is_idle(client: Client) -> bool:
    """Whether no pod is pending, no node is leaving or to be launched, and nothing else keeps nodes.

    Raises:
        ApiError: the API server can't be read.
    """
    reader = cached_reader(client)
    if any(is_pending(pod) for pod in reader.pods.read().objects):
        return False
    claims = reader.node_claims().own.objects
    if any(claim.metadata.deletion_timestamp is not None or not claim.status.provider_id for claim in claims):
        return False
    if any(names.STANDBY in claim.metadata.annotations for claim in claims):
        return False
    if any(node.metadata.deletion_timestamp is not None for node in reader.nodes.read().objects):
        return False
    if any(_keeps_nodes(pool) for pool in list_node_pools(client)):
        return False
    buffers = listing.list_served(client, resources.CAPACITY_BUFFER_VERSIONS, CapacityBuffer).objects
    return not (buffers or list_provisioning_requests(client)[0])


def _keeps_nodes(pool: NodePool) -> bool:
    """Whether the NodePool wants nodes without a pod: it is static, or has standby nodes."""
    annotations = {**pool.metadata.annotations, **pool.spec.template.metadata.annotations}
    return pool.spec.replicas is not None or names.STANDBY in annotations


# --- what a run works with ---


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
