"""EC2's status checks and scheduled events of the cluster's instances, which the sweep of each minute looks for.

One call a minute, of one filter after the other (:data:`shared.interruptions.instance_status.FILTERS`): on a healthy
cluster EC2 returns nothing, and nothing else is read. EC2 knows no filter by tag for this call, so instances of others
are left out by the NodeClaims.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from functions.interruption.batch import Message
from functions.interruption.verification import VerifiedEvent
from shared.api import labels as names
from shared.api.meta import EventReason
from shared.api.pause import paused_pools, read_pause
from shared.api.zonal_shift import current_shifts
from shared.base.aws import PAGES
from shared.base.struct import Struct
from shared.cluster.cluster_pause import lease_annotations
from shared.cluster.snapshot_reader import list_node_pools
from shared.interruptions import instance_status
from shared.interruptions.notice import Action
from shared.interruptions.parser import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger
    from mypy_boto3_ec2 import EC2Client

    from functions.interruption.node_claim_lookup import NodeClaimLookup
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.interruptions.notice import Notice

NO_MESSAGE = ""
"""The id in place of a message's: a later sweep finds what is left."""


class StatusChecks(Struct, kw_only=True):
    """The sweep's look at EC2's status of instances. ``cluster`` is the cluster's name."""

    cluster: str
    client: Client
    node_claims: NodeClaimLookup
    recorder: Recorder
    ec2: Callable[[], EC2Client]
    now: Callable[[], datetime]
    logger: Logger

    def events(self) -> list[VerifiedEvent]:
        """What EC2's answer requires, as if an event had announced it. Without an answer there is nothing.

        Raises:
            ApiError: the cluster can't be read.
        """
        now = self.now()
        notices = self._notices(now)
        if not notices:
            return []
        claims = self.node_claims.all_by_instance()
        managed = [(claims[n.instance_ids[0]], n) for n in notices if n.instance_ids[0] in claims]
        checks = [(c, n) for c, n in managed if n.action is Action.CORDON_AND_DRAIN]
        allowed = self._allowed(checks, claims) if checks else []
        scheduled = [(c, n) for c, n in managed if n.action is not Action.CORDON_AND_DRAIN]
        return [_event(claim, notice, now) for claim, notice in (*allowed, *scheduled)]

    def _notices(self, now: datetime) -> list[Notice]:
        filters = instance_status.FILTERS[now.minute % len(instance_status.FILTERS)]
        try:
            pages = (
                self.ec2().get_paginator("describe_instance_status").paginate(Filters=filters, PaginationConfig=PAGES)
            )
            statuses = [status for page in pages for status in page["InstanceStatuses"]]
        except (BotoCoreError, ClientError) as error:
            self.logger.warning(
                "EC2's status checks can't be read; it takes ec2:DescribeInstanceStatus", extra={"why": str(error)}
            )
            return []
        return [n for status in statuses if (n := instance_status.notice_of(status, now=now)) is not None]

    def _allowed(
        self, failing: Sequence[tuple[NodeClaim, Notice]], claims: Mapping[str, NodeClaim]
    ) -> list[tuple[NodeClaim, Notice]]:
        """Those of the instances that may be removed: not where so many fail that the trouble is AWS's.

        A pause, and a zone that traffic is shifted away from, keep them too, as they keep nodes from being repaired.
        """
        zones = {id_: claim.metadata.labels.get(names.ZONE, "") for id_, claim in claims.items()}
        brake = instance_status.brake({n.instance_ids[0] for _, n in failing}, zones)
        now, annotations = self.now(), lease_annotations(self.client, cluster=self.cluster)
        shifted = current_shifts(annotations, now=now)
        pools = {pool.name: pool for pool in list_node_pools(self.client)}
        paused = paused_pools(pools.values(), read_pause(annotations, now=now), now=now)
        allowed = []
        kept: dict[str, str] = {}
        for claim, notice in failing:
            zone, pool = claim.metadata.labels.get(names.ZONE, ""), claim.metadata.labels.get(names.NODEPOOL, "")
            if why := brake.why_kept(zone):
                kept[pool] = why
            elif zone not in shifted and pool not in paused and not _is_removed(claim):
                allowed.append((claim, notice))
        self._say_why_kept(kept, pools)
        return allowed

    def _say_why_kept(self, kept: Mapping[str, str], pools: Mapping[str, NodePool]) -> None:
        for name, why in sorted(kept.items()):
            message = f"{why}: AWS probably has trouble, so none of these nodes is replaced"
            self.logger.error("Nodes with failed status checks are kept", extra={"nodepool": name, "why": why})
            if name in pools:
                self.recorder.record(pools[name].ref, "Warning", EventReason("InstancesUnhealthy"), message)


def _is_removed(claim: NodeClaim) -> bool:
    """Whether the NodeClaim is deleted with a deadline already, so that nothing is left to do."""
    return claim.metadata.deletion_timestamp is not None and names.TERMINATION_TIMESTAMP in claim.metadata.annotations


def _event(claim: NodeClaim, notice: Notice, now: datetime) -> VerifiedEvent:
    message = Message(id=NO_MESSAGE, event=Event(notice=notice, time=now), redelivered=False)
    return VerifiedEvent(message=message, claim=claim, confirmed=True)
