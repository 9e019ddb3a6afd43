"""One round of provisioning as a value, what it works with, and the interface of optional features.

A round is read, adjusted by features, decided, adjusted again and written (``provisioner``). Each step returns the
round changed, so that a feature sees what those before it made of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from shared.api import labels as names
from shared.base.struct import Struct, with_fields
from shared.cloud_provider import ResolvedNodePools
from shared.provisioning.nodeclaim_creation import create_node_claims, new_node_claims
from shared.provisioning.standalone_claims import with_standalone_pools
from shared.scheduling.decision import Decision, Problem
from shared.scheduling.scheduler import schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from shared.api.nodeclaim import NodeClaim
    from shared.api.pause import Pause
    from shared.base.settings import ProvisioningSettings
    from shared.cloud_provider import CloudProvider
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.cluster.lease import Lease
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.node_groups.group_pools import ScaleUp
    from shared.scheduling.decision import PlannedNodeClaim, UnschedulableReason
    from shared.snapshot import Snapshot


SETTLING_SECONDS = 15.0
"""A pod that has waited for this time may have lost machines whose NodeClaims are gone; sooner, these are still
there."""


def schedule_with(
    snapshot: Snapshot, resolved_pools: ResolvedNodePools, leaving: frozenset[str] = frozenset()
) -> Decision:
    """The decision for the pods that need a node and those of ``leaving`` nodes."""
    return schedule(
        Problem(
            snapshot=snapshot,
            instance_types=resolved_pools.instance_types,
            not_ready=resolved_pools.not_ready,
            leaving=leaving,
            unused=resolved_pools.unused,
        )
    )


class Schedule(Protocol):
    """Decides for pending pods and those of leaving nodes."""

    def __call__(self, snapshot: Snapshot, *, resolved_pools: ResolvedNodePools) -> Decision:
        """The decision from this snapshot, with what these NodePools can launch."""


class Round(Struct, kw_only=True, eq=False):
    """One round. ``leaving`` nodes (by name) take no pods; ``decision_id`` follows from the run and the attempt.

    ``created`` are the NodeClaims that it wrote, ``unlaunched`` older ones without an instance. ``nominated_claims``
    has the NodeClaim's name for each pod that is expected on a node that doesn't exist yet.
    ``missing_replicas`` says by static pool why not all of its replicas can be launched, ``missing_standbys`` the same
    of standby nodes. ``recently_unavailable`` says why pods were unschedulable until offerings that had no capacity
    some time ago were tried again. ``scale_ups`` are the node groups that were asked for nodes.
    ``allowed`` is which planned NodeClaims may be launched in this hour, ``lease_annotations`` what is written to the
    Lease with its check.
    """

    lease: Lease
    now: datetime
    attempt: int
    leaving: frozenset[str]
    decision_id: str
    snapshot: Snapshot
    schedule: Schedule
    resolved_pools: ResolvedNodePools = ResolvedNodePools(instance_types={}, not_ready={}, node_classes={})
    decision: Decision = Decision()
    pause: Pause | None = None
    created: tuple[NodeClaim, ...] = ()
    unlaunched: tuple[NodeClaim, ...] = ()
    nominated_claims: Mapping[str, str] = {}
    missing_replicas: Mapping[str, str] = {}
    missing_standbys: Mapping[str, str] = {}
    recently_unavailable: Mapping[str, UnschedulableReason] = {}
    scale_ups: tuple[ScaleUp, ...] = ()
    allowed: Callable[[Sequence[PlannedNodeClaim]], tuple[PlannedNodeClaim, ...]] = tuple
    lease_annotations: Mapping[str, str] = {}


class Provisioning(Struct, kw_only=True):
    """What the rounds of one run work with. ``run`` is its id, which NodeClaims' names follow.

    ``by`` is the function: only the provisioner buys standby nodes, and only interruption launches despite a pause.
    """

    client: Client
    recorder: Recorder
    settings: ProvisioningSettings
    cloud_provider: CloudProvider
    catalog: InstanceTypeCatalog
    run: str
    by: str
    logger: Logger
    clock: Callable[[], datetime]
    unusable_standbys: set[str] = set()
    """The NodeClaims of standby nodes that couldn't be started in this run."""

    def decide(self, round_: Round) -> Round:
        """The round with its decision.

        If pods are unschedulable, it is made again with offerings that had no capacity some time ago.
        """
        decision = round_.schedule(round_.snapshot, resolved_pools=round_.resolved_pools)
        decided = with_fields(round_, decision=decision, recently_unavailable={})
        if not decision.pod_errors:
            return decided
        retried_pools = self.resolved_pools(round_.snapshot, round_.now, only_recently_unavailable=True)
        if retried_pools == round_.resolved_pools:
            return decided
        retried = round_.schedule(round_.snapshot, resolved_pools=retried_pools)
        if len(retried.pod_errors) >= len(decision.pod_errors):
            return decided
        resolved_errors = {pod: why for pod, why in decision.pod_errors.items() if pod not in retried.pod_errors}
        return with_fields(round_, decision=retried, resolved_pools=retried_pools, recently_unavailable=resolved_errors)

    def resolved_pools(
        self, snapshot: Snapshot, now: datetime, *, only_recently_unavailable: bool = False
    ) -> ResolvedNodePools:
        """What the NodePools, and NodeClaims without one, can launch now."""
        if any(names.NODEPOOL not in claim.metadata.labels for claim in snapshot.node_claims):
            snapshot = with_standalone_pools(snapshot)
        return self.cloud_provider.list_instance_types(
            snapshot, now=now, only_recently_unavailable=only_recently_unavailable
        )

    def create_node_claims(
        self,
        planned: Sequence[PlannedNodeClaim],
        round_: Round,
        *,
        decision_id: str,
        prices: Mapping[tuple[str, ...], float] | None = None,
        standby: bool = False,
    ) -> tuple[NodeClaim, ...]:
        """Write the planned NodeClaims; those that are there already are left as they are."""
        nominate = self.settings.planned_pods == "nominated"
        claims = new_node_claims(
            planned,
            round_.snapshot,
            round_.resolved_pools,
            decision=decision_id,
            prices=prices,
            nominate=nominate,
            standby=standby,
        )
        return create_node_claims(self.client, claims, planned, logger=self.logger)


class Feature(Struct):
    """An optional part of provisioning: the round before its decision, after it, and what is written for it.

    The lease is checked between ``after`` and ``write``. ``before`` may write too, after a check of its own.
    """

    def before(self, round_: Round) -> Round:
        """The round that is decided."""
        return round_

    def after(self, round_: Round) -> Round:
        """The round with the decision as this feature changes it; nothing is written."""
        return round_

    def write(self, round_: Round) -> Round:
        """The round after this feature has written its part of the decision."""
        return round_


class LaunchOptions(Feature, kw_only=True):
    """What NodePools can launch; always on."""

    provisioning: Provisioning

    def before(self, round_: Round) -> Round:
        """The round with what the NodePools of its snapshot can launch."""
        pools = self.provisioning.resolved_pools(round_.snapshot, round_.now)
        return with_fields(round_, resolved_pools=pools)
