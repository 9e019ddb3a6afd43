"""Claims become instances, and what came of it is put on record: on the claims, and for offerings in the table.

Outside the lease, from the claims that stand in the cluster. The launch is made repeatable by its ClientToken, so any
line here can be the last one and the next run goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared import parallel, runtime
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import to_json, with_condition
from shared.api.nodeclaim import with_ready
from shared.api.quantity import format_resources
from shared.cloud_provider import LaunchedInstance, LaunchRequest
from shared.cluster import resources, writes
from shared.provisioning.nodeclaim_creation import instance_types

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import CloudProvider, LaunchFailure, LaunchResult, ResolvedNodePools
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.instance_types.instance_type import InstanceType


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """What the launches of one run need."""

    client: Client
    recorder: Recorder
    cloud_provider: CloudProvider
    logger: Logger

    def launch(self, claims: Iterable[NodeClaim], offers: ResolvedNodePools) -> tuple[LaunchResult, ...]:
        """Launch the claims and record what came of each; those whose pool or class can't launch now wait."""
        now = runtime.current().now()
        requests = []
        kinds: dict[tuple[str, frozenset[str]], tuple[InstanceType, ...]] = {}
        for claim in claims:
            request = _request(claim, offers, kinds)
            if request is None:
                self.logger.warning("A NodeClaim waits for its NodePool or node class", extra={"nodeclaim": claim.name})
            else:
                requests.append(request)
        if not requests:
            return ()
        by_name = {r.claim.name: r.claim for r in requests}
        results = self.cloud_provider.create(requests, now=now)
        parallel.each(lambda r: self._record(by_name[r.claim_name], r, now), results)
        return results

    def _record(self, claim: NodeClaim, result: LaunchResult, now: datetime) -> None:
        if isinstance(result, LaunchedInstance):
            self._record_launch(claim, result, now)
        else:
            self._record_failure(claim, result, now)

    def _record_launch(self, claim: NodeClaim, launched: LaunchedInstance, now: datetime) -> None:
        """Labels first, Launched last: a run that dies in between is taken up again by its ClientToken."""
        self.client.patch(resources.NODE_CLAIMS.path(claim.name), {"metadata": {"labels": dict(launched.labels)}})
        conditions = with_condition(
            claim.status.conditions, nodeclaim.LAUNCHED, status=True, reason="Launched", now=now
        )
        status = {
            "providerID": launched.provider_id,
            "imageID": launched.image_id,
            "capacity": format_resources(launched.capacity),
            "allocatable": format_resources(launched.allocatable),
            "conditions": to_json(with_ready(conditions, now=now)),
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
        """Without capacity the offerings are remembered and the claim goes; what a user must mend is told on it."""
        self.logger.warning(
            "An instance was not launched",
            extra={"nodeclaim": claim.name, "reason": failed.reason, "why": failed.message, "kind": failed.kind},
        )
        if failed.kind == "throttled":
            return
        self.recorder.record(claim.ref, "Warning", failed.reason, failed.message)
        if failed.kind == "configuration":
            conditions = with_condition(
                claim.status.conditions,
                nodeclaim.LAUNCHED,
                status=False,
                reason=failed.reason,
                message=failed.message,
                now=now,
            )
            writes.patch_status(self.client, resources.NODE_CLAIMS, claim.name, {"conditions": to_json(conditions)})
            return
        writes.delete(self.client, resources.NODE_CLAIMS, claim)


def _request(
    claim: NodeClaim, offers: ResolvedNodePools, kinds: dict[tuple[str, frozenset[str]], tuple[InstanceType, ...]]
) -> LaunchRequest | None:
    """What to ask EC2 for, or None while the claim's pool or class can't launch.

    ``kinds`` keeps the types that claims of one kind may be: many claims of a decision are alike.
    """
    pool = claim.metadata.labels.get(names.NODEPOOL, "")
    node_class = offers.node_classes.get(pool)
    allowed = instance_types(claim)
    if (pool, allowed) not in kinds:
        kinds[pool, allowed] = tuple(t for t in offers.instance_types.get(pool, ()) if t.name in allowed)
    types = kinds[pool, allowed]
    if node_class is None or not types:
        return None
    return LaunchRequest(claim=claim, node_class=node_class, instance_types=types)
