"""Schedules pending pods under the cluster's lease, and creates the NodeClaims that they need.

Nothing is launched here. If a run dies after writing, the next run of any function launches the NodeClaims: every round
returns those that aren't launched yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import TYPE_CHECKING

from msgspec.structs import asdict

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
    """A decision whose NodeClaims are ``created``; ``unlaunched`` are older ones without an instance.

    ``nominated_claims`` has the NodeClaim's name for each pod that is expected on a node that doesn't exist yet.
    ``missing_replicas`` says by static pool why not all of its replicas can be launched. ``recently_unavailable`` says
    why pods were unschedulable until offerings that had no capacity some time ago were tried again.
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
    """The scheduler of one run. ``holder`` is the lease's holder; ``run`` is the id that NodeClaims' names follow."""

    client: Client
    settings: ProvisioningSettings
    cloud_provider: CloudProvider
    holder: str
    run: str
    logger: Logger

    def schedule(self, attempt: int, leaving: frozenset[str]) -> ScheduledRound:
        """Schedule pending pods and those of ``leaving`` nodes (by name), which take no pods.

        Raises:
            LeaseHeldError: another function is deciding.
            LeaseLostError: this one took too long; nothing is written.
        """
        clock = runtime.current().now
        now = clock()
        with hold(self.client, cluster=self.settings.cluster_name, holder=self.holder, now=clock) as lease:
            snapshot = read_snapshot(self.client, now=now)
            resolved_pools = self._resolved_pools(snapshot, now)
            replicas, missing = self._create_replicas(lease, snapshot, resolved_pools, attempt)
            if replicas:
                snapshot = with_fields(snapshot, node_claims=(*snapshot.node_claims, *replicas))
            decision, resolved_pools, recently_unavailable = self._decide(snapshot, resolved_pools, leaving, now)
            lease.check()
            planned = batch_launches(decision, snapshot, resolved_pools)
            claims = self._create_node_claims(planned, snapshot, resolved_pools, decision=f"{self.run}/{attempt}")
        created = (*replicas, *claims)
        created_names = {c.name for c in created}
        return ScheduledRound(
            decision=decision,
            snapshot=snapshot,
            resolved_pools=resolved_pools,
            created=created,
            unlaunched=tuple(c for c in snapshot.node_claims if _is_unlaunched(c) and c.name not in created_names),
            nominated_claims=_nominated_claims(decision, snapshot)
            | {pod: claim.name for p, claim in zip(planned, claims, strict=True) for pod in p.pods},
            missing_replicas=missing,
            recently_unavailable=recently_unavailable,
        )

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

    def _create_node_claims(
        self,
        planned: Sequence[PlannedNodeClaim],
        snapshot: Snapshot,
        resolved_pools: ResolvedNodePools,
        *,
        decision: str,
    ) -> tuple[NodeClaim, ...]:
        claims = new_node_claims(planned, snapshot, resolved_pools, decision=decision)

        def create(item: tuple[PlannedNodeClaim, NodeClaim]) -> NodeClaim:
            planned_claim, claim = item
            stored = writes.create(self.client, resources.NODE_CLAIMS, claim)
            self.logger.info(
                "Created a NodeClaim",
                extra={
                    "nodeclaim": stored.name,
                    "nodepool": planned_claim.node_pool,
                    "pods": len(planned_claim.pods),
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


def _is_unlaunched(claim: NodeClaim) -> bool:
    return claim.metadata.deletion_timestamp is None and not is_true(claim.status.conditions, nodeclaim.LAUNCHED)
