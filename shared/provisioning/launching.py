"""Launches instances for NodeClaims, and records the results on them.

It runs without the lease, from NodeClaims that are written. A launch is idempotent by its ClientToken, so a run may die
at any line, and the next run continues.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim, spot
from shared.api.meta import EventReason, is_true, to_json, with_condition
from shared.api.nodeclaim import with_ready
from shared.api.quantity import format_resources
from shared.api.standby import awaits_start
from shared.base.runtime import KUBERNETES_THREADS, in_threads
from shared.base.struct import Struct
from shared.cloud_provider import LaunchedInstance, LaunchFailure, LaunchRequest, instance_id
from shared.cluster import listing, resources, writes
from shared.cluster.errors import NotFoundError
from shared.disruption.disruption_cost import INTERRUPTION_RESTART_COST, LOST_WORK_HOURS
from shared.provisioning import standalone_claims
from shared.provisioning.nodeclaim_creation import instance_types
from shared.scheduling.nominations import planned_pods

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass
    from shared.cloud_provider import CloudProvider, LaunchResult, ResolvedNodePools
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.decision import Decision
    from shared.snapshot import Snapshot


_KEPT = frozenset({"configuration", "unconfirmed"})
"""The failures after which a NodeClaim waits, and says so in a condition."""


class Launcher(Struct, kw_only=True):
    """Launches the NodeClaims of one run."""

    client: Client
    recorder: Recorder
    cloud_provider: CloudProvider
    logger: Logger
    clock: Callable[[], datetime]

    def launch(
        self,
        claims: Iterable[NodeClaim],
        resolved_pools: ResolvedNodePools,
        node_classes: Iterable[EC2NodeClass] = (),
    ) -> tuple[LaunchResult, ...]:
        """Launch the claims and record each result; claims whose pool or class can't launch now are left waiting.

        ``node_classes`` are the stored ones, for standalone NodeClaims.
        """
        now = self.clock()
        claims = tuple(claims)
        starting = [c for c in claims if _is_starting(c)]
        if starting:
            # Imported here: few clusters have standby nodes.
            from shared.standby.starting import StandbyStarter  # noqa: PLC0415

            starter = StandbyStarter(
                client=self.client, recorder=self.recorder, cloud_provider=self.cloud_provider, logger=self.logger
            )
            started = starter.start(starting, now=now)
            remaining = [c for c in claims if c not in starting]
            return (*started, *self.launch(remaining, resolved_pools, node_classes))
        requests = []
        types_cache: dict[tuple[str, frozenset[str]], tuple[InstanceType, ...]] = {}
        for claim in claims:
            if names.NODEPOOL not in claim.metadata.labels:
                request = self._standalone_request(claim, resolved_pools, node_classes, now)
            else:
                request = _launch_request(claim, resolved_pools, types_cache)
                if request is None:
                    self._record_waiting(claim, resolved_pools, now)
            if request is not None:
                requests.append(request)
        if not requests:
            return ()
        by_name = {r.claim.name: r for r in requests}
        results = self.cloud_provider.create(requests, now=now, recorded=self._recorded_instances)
        in_threads(lambda r: self._record(by_name[r.claim_name], r, now), results, threads=KUBERNETES_THREADS)
        return results

    def _recorded_instances(self) -> dict[str, str]:
        """The ids of the instances that NodeClaims have now, by NodeClaim."""
        claims = listing.list_objects(self.client, resources.NODE_CLAIMS, nodeclaim.NodeClaim).objects
        return {c.name: id_ for c in claims if (id_ := instance_id(c.status.provider_id))}

    def _standalone_request(
        self,
        claim: NodeClaim,
        resolved_pools: ResolvedNodePools,
        node_classes: Iterable[EC2NodeClass],
        now: datetime,
    ) -> LaunchRequest | None:
        """The launch request of a NodeClaim without a NodePool; None if it can't be launched and is deleted."""
        by_name = {c.name: c for c in node_classes}
        types = standalone_claims.launchable(claim, by_name.get(claim.spec.node_class_ref.name), resolved_pools)
        if isinstance(types, LaunchFailure):
            self._record_failure(claim, types, now)
            return None
        try:
            claim = writes.update(self.client, resources.NODE_CLAIMS, claim, standalone_claims.prepared)
        except NotFoundError:
            return None
        node_class = resolved_pools.node_classes[standalone_claims.pool_name(claim)]
        return LaunchRequest(claim=claim, node_class=node_class, instance_types=types)

    def _record_waiting(self, claim: NodeClaim, resolved_pools: ResolvedNodePools, now: datetime) -> None:
        """Say on the NodeClaim why it isn't launched; nothing is written if it says so already."""
        pool = claim.metadata.labels.get(names.NODEPOOL, "")
        why = resolved_pools.not_ready.get(pool) or f"NodePool {pool} has none of its instance types now"
        self.logger.warning("A NodeClaim waits until it can be launched", extra={"nodeclaim": claim.name, "why": why})
        conditions = with_condition(
            claim.status.conditions,
            nodeclaim.LAUNCHED,
            status=None,
            reason=EventReason("NodePoolNotReady"),
            message=why,
            now=now,
            generation=claim.metadata.generation,
        )
        conditions = with_ready(conditions, now=now, generation=claim.metadata.generation)
        if conditions != claim.status.conditions:
            writes.patch_status(self.client, resources.NODE_CLAIMS, claim.name, {"conditions": to_json(conditions)})

    def _record(self, request: LaunchRequest, result: LaunchResult, now: datetime) -> None:
        if isinstance(result, LaunchedInstance):
            self._record_launch(request.claim, result, now)
            self.recorder.record(request.claim.ref, "Normal", "Launched", _launch_message(request, result))
        else:
            self._record_failure(request.claim, result, now)

    def _record_launch(self, claim: NodeClaim, launched: LaunchedInstance, now: datetime) -> None:
        """Labels first, Launched last: if the run dies in between, the next run repeats the launch."""
        self.client.patch(resources.NODE_CLAIMS.path(claim.name), {"metadata": {"labels": dict(launched.labels)}})
        generation = claim.metadata.generation
        conditions = with_condition(
            claim.status.conditions, nodeclaim.LAUNCHED, status=True, reason="Launched", now=now, generation=generation
        )
        status = {
            "providerID": launched.provider_id,
            "imageID": launched.image_id,
            "capacity": format_resources(launched.capacity),
            "allocatable": format_resources(launched.allocatable),
            "conditions": to_json(with_ready(conditions, now=now, generation=generation)),
        }
        writes.patch_status(self.client, resources.NODE_CLAIMS, claim.name, status)
        self.logger.info(
            "Launched an instance",
            extra={
                "nodeclaim": claim.name,
                "instance": launched.instance_id,
                "instance_type": launched.instance_type,
                "zone": launched.zone,
                "capacity_type": launched.capacity_type,
                "price": launched.price,
            },
        )

    def _record_failure(self, claim: NodeClaim, failed: LaunchFailure, now: datetime) -> None:
        """Delete the claim, unless it is retried (throttled, unconfirmed) or a user must act, as its condition says."""
        self.logger.warning(
            "Couldn't launch an instance",
            extra={"nodeclaim": claim.name, "reason": failed.reason, "why": failed.message, "kind": failed.kind},
        )
        if failed.kind == "throttled":
            return
        self.recorder.record(claim.ref, "Warning", failed.reason, failed.message)
        if failed.kind in _KEPT:
            unconfirmed = failed.kind == "unconfirmed"
            conditions = with_condition(
                claim.status.conditions,
                nodeclaim.LAUNCHED,
                status=None if unconfirmed else False,
                reason=nodeclaim.LAUNCH_UNCONFIRMED if unconfirmed else failed.reason,
                message=failed.message,
                now=now,
                generation=claim.metadata.generation,
            )
            conditions = with_ready(conditions, now=now, generation=claim.metadata.generation)
            writes.patch_status(self.client, resources.NODE_CLAIMS, claim.name, {"conditions": to_json(conditions)})
            return
        writes.delete(self.client, resources.NODE_CLAIMS, claim)


def _launch_message(request: LaunchRequest, launched: LaunchedInstance) -> str:
    """What was launched, for how many pods, and out of what EC2 chose it."""
    expected = request.claim.metadata.annotations.get(names.EXPECTED_PODS)
    details = {
        "planned at": f"${nodeclaim.planned_price(request.claim):.4f}/h",
        "pods": len(planned_pods.planned_pods(request.claim)),
        **({"expected pods": expected} if expected else {}),
        "instance types to choose from": len(request.instance_types),
    }
    instance = f"{launched.instance_type} {launched.capacity_type} in {launched.zone} at ${launched.price:.4f}/h"
    return f"{instance} ({', '.join(f'{name} {detail}' for name, detail in details.items())})"


def deleted_claims(claims: Iterable[NodeClaim], results: Iterable[LaunchResult]) -> list[NodeClaim]:
    """The NodeClaims that were deleted because they couldn't be launched."""
    failed = {r.claim_name for r in results if isinstance(r, LaunchFailure) and r.kind not in {"throttled", *_KEPT}}
    return [c for c in claims if c.name in failed]


def unlaunched_claims(claims: Iterable[NodeClaim], created: Iterable[NodeClaim] = ()) -> tuple[NodeClaim, ...]:
    """The NodeClaims that need an instance, without those that were just created."""
    created_names = {c.name for c in created}
    return tuple(c for c in claims if is_unlaunched(c) and c.name not in created_names)


def is_unlaunched(claim: NodeClaim) -> bool:
    """Whether the NodeClaim needs an instance, or its standby node has to be started."""
    if claim.metadata.deletion_timestamp is not None or names.RESTORED in claim.metadata.annotations:
        return False
    return not is_true(claim.status.conditions, nodeclaim.LAUNCHED) or _is_starting(claim)


def _is_starting(claim: NodeClaim) -> bool:
    return names.STANDBY in claim.metadata.annotations and awaits_start(claim)


def _launch_request(
    claim: NodeClaim,
    resolved_pools: ResolvedNodePools,
    types_cache: dict[tuple[str, frozenset[str]], tuple[InstanceType, ...]],
) -> LaunchRequest | None:
    """The claim's launch request, or None while its pool or class can't launch.

    ``types_cache`` keeps instance types by pool and names: many claims of a decision have the same.
    """
    pool = claim.metadata.labels.get(names.NODEPOOL, "")
    node_class = resolved_pools.node_classes.get(pool)
    allowed = instance_types(claim)
    if (pool, allowed) not in types_cache:
        pool_types = resolved_pools.instance_types.get(pool, ())
        types_cache[pool, allowed] = tuple(t for t in pool_types if t.name in allowed)
    types = types_cache[pool, allowed]
    if node_class is None or pool in resolved_pools.not_ready or not types:
        return None
    return LaunchRequest(
        claim=claim,
        node_class=node_class,
        instance_types=types,
        interruption_cost=_interruption_cost(claim),
        spot_options=resolved_pools.spot_options.get(pool, spot.DEFAULT),
    )


def _interruption_cost(claim: NodeClaim) -> float:
    """USD that one interruption of the claim's node costs: each planned pod restarts, and minutes of work are lost."""
    return len(
        planned_pods.planned_pods(claim)
    ) * INTERRUPTION_RESTART_COST + LOST_WORK_HOURS * nodeclaim.planned_price(claim)


def add_planned_pods(client: Client, decision: Decision, snapshot: Snapshot) -> None:
    """Write pods that the decision adds to nodes on their way to their NodeClaims, so that they are nominated."""
    pending = {pod.key for pod in snapshot.pods if not pod.spec.node_name}

    def write(claim: NodeClaim) -> None:
        pods = decision.existing_nodes.get(claim.status.node_name) or decision.existing_nodes.get(claim.name, ())
        annotations = planned_pods.add_planned_pods(claim, pending.intersection(pods), now=snapshot.taken_at)
        if annotations:
            with contextlib.suppress(NotFoundError):
                client.patch(resources.NODE_CLAIMS.path(claim.name), {"metadata": {"annotations": annotations}})

    closed = planned_pods.closed_windows(snapshot)
    claims = (c for c in snapshot.node_claims if planned_pods.is_nominated_in_status(c) and c.name not in closed)
    in_threads(write, claims, threads=KUBERNETES_THREADS)
