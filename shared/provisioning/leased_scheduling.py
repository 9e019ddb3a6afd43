"""The decision: one look at the cluster under its lease, and the claims that follow from it, written there.

Nothing is launched here. A run that dies after writing is finished by the next one, whoever that is, because claims
that stand there unlaunched are part of what every decision answers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from dataclasses import replace as with_fields
from typing import TYPE_CHECKING

from shared import parallel, runtime
from shared.api import nodeclaim
from shared.api.meta import is_true
from shared.cluster import resources, writes
from shared.cluster.lease import hold
from shared.cluster.snapshot_reader import read_snapshot
from shared.disruption.disruption_queue import replaced_claims
from shared.provisioning.nodeclaim_creation import batch_launches, new_node_claims
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
    from shared.scheduling.decision import Decision, PlannedNodeClaim, UnschedulableReason
    from shared.settings import ProvisioningSettings
    from shared.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class ScheduledRound:
    """A decision that is written: ``created`` are its claims, ``waiting`` older ones that have no instance yet.

    ``arriving`` has the name of the claim for each pod whose place is on a machine that is still to come.
    ``lacks`` says of static pools (by name) why they can't have all their replicas, ``scarce`` of pods why they had no
    place until offerings that were refused some time ago counted as available again.
    """

    decision: Decision
    snapshot: Snapshot
    resolved_pools: ResolvedNodePools
    created: tuple[NodeClaim, ...]
    unlaunched: tuple[NodeClaim, ...]
    nominated_claims: Mapping[str, str]
    missing_replicas: Mapping[str, str]
    recently_unavailable: Mapping[str, UnschedulableReason]


@dataclass(frozen=True, kw_only=True)
class LeasedScheduler:
    """What decisions of one run are made with. ``holder`` says who holds the lease, ``run`` makes claims' names."""

    client: Client
    settings: ProvisioningSettings
    cloud_provider: CloudProvider
    holder: str
    run: str
    logger: Logger

    def schedule(self, attempt: int, leaving: frozenset[str]) -> ScheduledRound:
        """Place what is pending, and the pods of ``leaving`` nodes (by name), which get nothing new.

        Raises:
            LeaseHeldError: another function is deciding.
            LeaseLostError: this one took too long; nothing is written.
        """
        now = runtime.current().now()
        with hold(
            self.client, cluster=self.settings.cluster_name, holder=self.holder, now=runtime.current().now
        ) as lease:
            snapshot = read_snapshot(self.client, now=now)
            resolved_pools = self._resolved_pools(snapshot, now)
            fixed, lacks = self._write_static(lease, snapshot, resolved_pools, attempt)
            if fixed:
                snapshot = with_fields(snapshot, node_claims=(*snapshot.node_claims, *fixed))
            decision = _plan(snapshot, resolved_pools, leaving)
            scarce: dict[str, UnschedulableReason] = {}
            if decision.pod_errors:
                lately = self._resolved_pools(snapshot, now, lately=True)
                again = decision if lately == resolved_pools else _plan(snapshot, lately, leaving)
                if len(again.pod_errors) < len(decision.pod_errors):
                    scarce = {pod: why for pod, why in decision.pod_errors.items() if pod not in again.pod_errors}
                    resolved_pools, decision = lately, again
            lease.check()
            machines = batch_launches(decision, snapshot, resolved_pools)
            planned_now = self._write(machines, snapshot, resolved_pools, decision=f"{self.run}/{attempt}")
        created = (*fixed, *planned_now)
        there = {n.metadata.name for n in snapshot.nodes}
        arriving = {pod: name for name, pods in decision.existing_nodes.items() if name not in there for pod in pods}
        arriving |= {pod: c.name for m, c in zip(machines, planned_now, strict=True) for pod in m.pods}
        made = {c.name for c in created}
        return ScheduledRound(
            decision=decision,
            snapshot=snapshot,
            resolved_pools=resolved_pools,
            created=created,
            unlaunched=tuple(c for c in snapshot.node_claims if _is_unlaunched(c) and c.name not in made),
            nominated_claims=arriving,
            missing_replicas=lacks,
            recently_unavailable=scarce,
        )

    def _resolved_pools(self, snapshot: Snapshot, now: datetime, *, lately: bool = False) -> ResolvedNodePools:
        return self.cloud_provider.list_instance_types(snapshot, now=now, only_recently_unavailable=lately)

    def _write_static(
        self, lease: Lease, snapshot: Snapshot, resolved_pools: ResolvedNodePools, attempt: int
    ) -> tuple[tuple[NodeClaim, ...], Mapping[str, str]]:
        """What static pools lack, written first, so that pending pods count on it."""
        replaced = replaced_claims(snapshot.node_claims)
        machines, lacks = missing_replicas(snapshot, resolved_pools.instance_types, resolved_pools.not_ready, replaced)
        if not machines:
            return (), lacks
        lease.check()
        return self._write(machines, snapshot, resolved_pools, decision=f"{self.run}/{attempt}/static"), lacks

    def _write(
        self,
        machines: Sequence[PlannedNodeClaim],
        snapshot: Snapshot,
        resolved_pools: ResolvedNodePools,
        *,
        decision: str,
    ) -> tuple[NodeClaim, ...]:
        claims = new_node_claims(machines, snapshot, resolved_pools, decision=decision)

        def write(item: tuple[PlannedNodeClaim, NodeClaim]) -> NodeClaim:
            machine, claim = item
            stored = writes.create(self.client, resources.NODE_CLAIMS, claim)
            self.logger.info(
                "Created a NodeClaim",
                extra={
                    "nodeclaim": stored.name,
                    "nodepool": machine.node_pool,
                    "pods": len(machine.pods),
                    "cheapest": asdict(machine.cheapest),
                    "instance_types": len(machine.instance_types),
                },
            )
            return stored

        return tuple(parallel.each(write, zip(machines, claims, strict=True)))


def _plan(snapshot: Snapshot, resolved_pools: ResolvedNodePools, leaving: frozenset[str]) -> Decision:
    return schedule(
        Problem(
            snapshot=snapshot,
            instance_types=resolved_pools.instance_types,
            not_ready=resolved_pools.not_ready,
            leaving=leaving,
        )
    )


def _is_unlaunched(claim: NodeClaim) -> bool:
    return claim.metadata.deletion_timestamp is None and not is_true(claim.status.conditions, nodeclaim.LAUNCHED)
