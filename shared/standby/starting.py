"""Standby nodes in one round of provisioning: used where nodes would be launched, and bought again.

A decision that launches nothing doesn't use them. One that does is made again with the stopped nodes as if they were on
their way, so that pods are packed onto them by the same rules, before new nodes. Those that get pods are marked as
starting under the lease; :mod:`shared.provisioning.launching` starts them, and an ordinary launch follows at once where
EC2 has no capacity for that.

Imported only in clusters that have standby nodes or ask for them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import to_json, with_condition
from shared.api.quantity import QuantityError, parse_resources
from shared.api.standby import STARTED, STARTING, STOPPED, standby_state, with_annotations
from shared.base.runtime import in_threads
from shared.base.struct import Struct, with_fields
from shared.cloud_provider import LaunchedInstance, LaunchFailure, instance_id
from shared.cluster import resources, writes
from shared.cluster.errors import ConflictError, NotFoundError
from shared.scheduling.nominations import planned_pods
from shared.standby.held_nodes import startable, without_standbys

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from shared.api.nodeclaim import NodeClaim
    from shared.api.quantity import Resources
    from shared.cloud_provider import CloudProvider, LaunchResult
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.decision import Decision
    from shared.snapshot import Snapshot

_ATTEMPTS = 2


class StandbyNodes(Struct, kw_only=True):
    """The standby nodes of one round. ``everything`` is the snapshot with them, ``unusable`` names failed NodeClaims.

    ``enabled``: the deployment allows to start and stop instances; otherwise standby nodes are only left alone.
    """

    client: Client
    everything: Snapshot
    enabled: bool
    unusable: Collection[str] = msgspec.field(default_factory=frozenset)

    @property
    def hidden(self) -> Snapshot:
        """The snapshot without them."""
        return without_standbys(self.everything)

    def after(self, starting: Iterable[NodeClaim]) -> Snapshot:
        """The snapshot with them, after these NodeClaims were marked as starting."""
        by_name = {c.name: c for c in starting}
        claims = tuple(by_name.get(c.name, c) for c in self.everything.node_claims)
        return with_fields(self.everything, node_claims=claims)

    def use(
        self,
        decision: Decision,
        snapshot: Snapshot,
        schedule: Callable[[Snapshot], Decision],
        instance_types: Mapping[str, tuple[InstanceType, ...]],
    ) -> Decision:
        """The decision with standby nodes in place of new ones, as existing nodes by NodeClaim; nothing is written.

        No pod may lose its place for it: unused standby nodes count against limits as others do.
        """
        if not self.enabled or not decision.new_node_claims:
            return decision
        offered = startable(self.everything, instance_types, unusable=self.unusable)
        for _ in range(_ATTEMPTS if offered else 0):
            after = schedule(with_fields(snapshot, node_claims=(*snapshot.node_claims, *offered)))
            used = tuple(c for c in offered if _is_used(c, after))
            if not used:
                break
            if after.pod_errors.keys() <= decision.pod_errors.keys():
                return after
            offered = used
        return decision

    def mark_starting(self, decision: Decision, *, decision_id: str, now: datetime) -> tuple[NodeClaim, ...]:
        """Write to the NodeClaims that the decision uses that they are being started, and for which pods.

        Those that were changed meanwhile are left out; their pods are scheduled again.
        """

        def write(claim: NodeClaim) -> NodeClaim | None:
            annotations = {
                names.STANDBY: STARTING,
                names.PLANNED_PODS: planned_pods.planned_pods_annotation(decision.existing_nodes.get(claim.name, ())),
                names.PLANNED_AT: now.isoformat(),
                names.DECISION: decision_id,
            }
            change = partial(with_annotations, annotations=annotations, expected=STOPPED)
            try:
                after = writes.update(self.client, resources.NODE_CLAIMS, claim, change)
            except (ConflictError, NotFoundError):
                return None
            return after if standby_state(after) == STARTING else None

        used = [c for c in self.everything.node_claims if standby_state(c) == STOPPED and _is_used(c, decision)]
        return tuple(c for c in in_threads(write, used) if c is not None)


def _is_used(claim: NodeClaim, decision: Decision) -> bool:
    return claim.name in decision.existing_nodes or claim.name in decision.chunks


class StandbyStarter(Struct, kw_only=True):
    """Starts the instances of NodeClaims that are marked as starting, and records the results."""

    client: Client
    recorder: Recorder
    cloud_provider: CloudProvider
    logger: Logger

    def start(self, claims: Sequence[NodeClaim], *, now: datetime) -> tuple[LaunchResult, ...]:
        """Start them; whatever fails but throttling is a failure of capacity: its pods are scheduled again at once."""
        failures = {f.claim_name: f for f in self.cloud_provider.start(claims, now=now)}

        def record(claim: NodeClaim) -> LaunchResult:
            failed = failures.get(claim.name)
            if failed is None:
                return self._record_start(claim, now)
            return self._record_failure(claim, failed)

        return tuple(in_threads(record, claims))

    def _record_start(self, claim: NodeClaim, now: datetime) -> LaunchedInstance:
        conditions = with_condition(
            claim.status.conditions,
            nodeclaim.LAUNCHED,
            status=True,
            reason=STARTED,
            now=now,
            generation=claim.metadata.generation,
        )
        writes.patch_status(self.client, resources.NODE_CLAIMS, claim.name, {"conditions": to_json(conditions)})
        labels = dict(claim.metadata.labels)
        launched = LaunchedInstance(
            claim_name=claim.name,
            instance_id=instance_id(claim.status.provider_id),
            provider_id=claim.status.provider_id,
            instance_type=labels.get(names.INSTANCE_TYPE, ""),
            zone=labels.get(names.ZONE, ""),
            capacity_type=labels.get(names.CAPACITY_TYPE, ""),
            image_id=claim.status.image_id,
            price=nodeclaim.planned_price(claim),
            capacity=_quantities(claim.status.capacity),
            allocatable=_quantities(claim.status.allocatable),
            labels=labels,
        )
        self.logger.info(
            "Started a standby node",
            extra={
                "nodeclaim": claim.name,
                "instance": launched.instance_id,
                "instance_type": launched.instance_type,
                "zone": launched.zone,
                "pods": len(planned_pods.planned_pods(claim)),
            },
        )
        return launched

    def _record_failure(self, claim: NodeClaim, failed: LaunchFailure) -> LaunchFailure:
        """The failure; the NodeClaim is stopped again, or deleted if its instance is gone."""
        self.logger.warning(
            "Couldn't start a standby node",
            extra={"nodeclaim": claim.name, "reason": failed.reason, "why": failed.message, "kind": failed.kind},
        )
        if failed.kind == "throttled":
            return failed
        self.recorder.record(claim.ref, "Warning", "StandbyNotStarted", failed.message)
        if failed.kind == "gone":
            writes.delete(self.client, resources.NODE_CLAIMS, claim)
        else:
            annotations = {names.STANDBY: STOPPED, names.PLANNED_PODS: None, names.PLANNED_AT: None}
            change = partial(with_annotations, annotations=annotations, expected=STARTING)
            try:
                writes.update(self.client, resources.NODE_CLAIMS, claim, change)
            except (ConflictError, NotFoundError) as error:
                self.logger.warning(
                    "A standby node is started again", extra={"nodeclaim": claim.name, "why": str(error)}
                )
        return with_fields(failed, kind="capacity")


def _quantities(raw: Mapping[str, str | int | float]) -> Resources:
    try:
        return parse_resources(raw)
    except QuantityError:
        return {}
