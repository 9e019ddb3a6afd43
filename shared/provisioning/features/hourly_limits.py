"""Hourly limits of launches: what a decision adds to the last hour, and the launches that it holds back.

Pods of held launches are unschedulable until the hour allows them, with the limit as the reason. Nodes for pods that an
interruption moves from nodes older than an hour are counted and never held back: there are only as many as existed.
Node groups have maximum sizes of their own and don't count. The counts are written with the renewal of the lease, in
the same request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.hourly_limits import HOUR, HourlyUse, read_last_hour
from shared.api.nodepool import node_group_of
from shared.base.struct import with_fields
from shared.provisioning.features import failed_launches
from shared.provisioning.nodeclaim_creation import one_on_trial
from shared.provisioning.round import Feature
from shared.scheduling.decision import UnschedulableReason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from shared.api.kubernetes import Node
    from shared.provisioning.round import Provisioning, Round
    from shared.scheduling.decision import Decision, PlannedNodeClaim


class HourlyLimits(Feature, kw_only=True):
    """The limits of one round. ``moving`` are the pods (namespace/name) of older nodes that leave."""

    provisioning: Provisioning
    hour: HourlyUse
    moving: frozenset[str]
    problems: dict[str, str]
    """Why launches are held back, by NodePool."""

    def before(self, round_: Round) -> Round:
        """The round whose launches are bounded."""
        return with_fields(round_, allowed=self.allowed)

    def allowed(self, planned: Sequence[PlannedNodeClaim]) -> tuple[PlannedNodeClaim, ...]:
        """The planned NodeClaims that may be launched, which are counted."""
        kept = []
        for claim in planned:
            pool, price = claim.node_pool, claim.cheapest.price
            if node_group_of(pool):
                kept.append(claim)
                continue
            problem = self._launch_problem(pool, price)
            if problem and self.moving.isdisjoint(claim.pods):
                self.problems[pool] = problem
                self.hour.count_held(pool)
                continue
            self.hour.count_launch(pool, price)
            kept.append(claim)
        return tuple(kept)

    def _launch_problem(self, pool: str, price: float) -> str:
        """Why the launch is held back, if it is so without the launches that got no instance."""
        problem = self.hour.launch_problem(pool, price)
        if not problem or self.hour.knows_failures:
            return problem
        self.hour.knows_failures = True
        for failed in failed_launches.take(self.provisioning):
            self.hour.give_back(failed)
        return self.hour.launch_problem(pool, price)

    def after(self, round_: Round) -> Round:
        """The round without the launches that are held back, with what is to be written of the hour."""
        tried = one_on_trial(round_.decision.new_node_claims, round_.snapshot.node_claims, round_.resolved_pools)
        decision = self._without_held(round_.decision, tried, self.allowed(tried))
        self._count_removals(round_, decision)
        static = {p.name for p in round_.snapshot.node_pools if p.spec.replicas is not None}
        missing = {pool: why for pool, why in self.problems.items() if pool in static}
        return with_fields(
            round_,
            decision=decision,
            missing_replicas={**round_.missing_replicas, **missing},
            lease_annotations=self.hour.changes(),
        )

    def _without_held(
        self, decision: Decision, tried: Sequence[PlannedNodeClaim], allowed: Sequence[PlannedNodeClaim]
    ) -> Decision:
        if len(allowed) == len(tried):
            return decision
        launched = set(map(id, allowed))
        held = [claim for claim in tried if id(claim) not in launched]
        why = {pool: UnschedulableReason(message=f"unschedulable: {text}") for pool, text in self.problems.items()}
        errors = {pod: why[claim.node_pool] for claim in held for pod in claim.pods}
        chunk_errors = {chunk: why[claim.node_pool] for claim in held for chunk in claim.chunks}
        held_ids = set(map(id, held))
        return with_fields(
            decision,
            new_node_claims=tuple(c for c in decision.new_node_claims if id(c) not in held_ids),
            pod_errors={**decision.pod_errors, **errors},
            chunk_errors={**decision.chunk_errors, **chunk_errors},
        )

    def _count_removals(self, round_: Round, decision: Decision) -> None:
        """Count leaving nodes that go by our choice: their NodeClaims exist, and their pods have room elsewhere."""
        unplaced = {p.spec.node_name for p in round_.snapshot.pods if p.key in decision.pod_errors}
        for claim in round_.snapshot.node_claims if round_.leaving else ():
            node = claim.status.node_name
            if claim.metadata.deletion_timestamp is None and node in round_.leaving and node not in unplaced:
                self.hour.count_removal(claim.metadata.labels.get(names.NODEPOOL, ""))


def hourly_limits(provisioning: Provisioning, round_: Round) -> HourlyLimits:
    """The feature for what the last hour had, by the annotations of the cluster's Lease and the NodeClaims."""
    snapshot = round_.snapshot
    last_hour = read_last_hour(round_.lease.annotations, now=round_.now)
    hour = HourlyUse(last_hour, snapshot.node_pools, snapshot.node_claims, now=round_.now)
    older = {n.metadata.name for n in snapshot.nodes if _is_older(n, round_.now) and n.metadata.name in round_.leaving}
    moving = frozenset(p.key for p in snapshot.pods if p.spec.node_name in older)
    return HourlyLimits(provisioning=provisioning, hour=hour, moving=moving, problems={})


def _is_older(node: Node, now: datetime) -> bool:
    """Whether the node is older than an hour: each leaves once, while machines that die young are bought again."""
    created = node.metadata.creation_timestamp
    return created is not None and now - created >= HOUR
