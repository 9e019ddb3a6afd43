"""Announced interruptions: nodes at risk, and nodes with maintenance ahead, are replaced before they must go.

An announcement is written to its NodeClaim first. Replacements are launched for the nodes that may go now
(:mod:`functions.interruption.early_drains`), which are drained once their pods fit elsewhere. The others stay marked
until a later sweep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from functions.interruption import early_drains
from functions.interruption.cordon_and_drain import Drain
from functions.interruption.rebalance_policy import is_ignored
from functions.interruption.replacement_launch import delayed_pods
from shared.base.struct import Struct
from shared.cluster import resources
from shared.cluster.cluster_pause import lease_state
from shared.cluster.errors import ApiError, NotFoundError
from shared.cluster.snapshot_reader import list_node_pools, read_snapshot
from shared.interruptions.instance_lookup import scheduled_events
from shared.interruptions.notice import Action
from shared.standby.held_nodes import without_standbys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger
    from mypy_boto3_ec2 import EC2Client

    from functions.interruption.batch import Report
    from functions.interruption.cordon_and_drain import Drainer
    from functions.interruption.early_drains import EarlyDrain
    from functions.interruption.node_claim_lookup import NodeClaimLookup
    from functions.interruption.replacement_launch import ReplacementLaunch
    from functions.interruption.verification import VerifiedEvent
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.provisioning.launch_records import ProvisioningReport
    from shared.snapshot import Snapshot
    from shared.termination.delayed_eviction import DelayedPods


class AnnouncedNodes(Struct, kw_only=True):
    """The nodes with announced interruptions, of one invocation. ``cluster`` is the cluster's name."""

    cluster: str
    client: Client
    node_claims: NodeClaimLookup
    drainer: Drainer
    replacements: ReplacementLaunch
    recorder: Recorder
    ec2: Callable[[], EC2Client]
    now: Callable[[], datetime]
    report: Report
    logger: Logger

    def follow(self, events: Iterable[VerifiedEvent], *, sweep: bool) -> set[str]:
        """Mark the nodes of these events, and replace marked nodes that may go now; a ``sweep`` does so without events.

        Returns the ids of messages to redeliver.
        """
        followed = self._without_ignored(events)
        failed = self._mark(followed)
        if followed or (sweep and self._has_marked_node_claims()):
            self._replace_marked(self.now())
        return failed

    def _without_ignored(self, events: Iterable[VerifiedEvent]) -> list[VerifiedEvent]:
        """The events without the rebalance recommendations that NodePools ignore, which only record an event."""
        events = list(events)
        if not any(e.notice.action is Action.APPLY_REBALANCE_POLICY for e in events):
            return events
        pools = list_node_pools(self.client)
        followed = []
        for event in events:
            claim, notice = event.claim, event.notice
            if notice.action is Action.APPLY_REBALANCE_POLICY and is_ignored(claim, pools):
                self.report["ignored"] += 1
                self.recorder.record(claim.ref, "Normal", notice.reason, notice.message)
            else:
                followed.append(event)
        return followed

    def _mark(self, events: Iterable[VerifiedEvent]) -> set[str]:
        """Write each announcement to its NodeClaim; returns the ids of messages to redeliver."""
        failed = set()
        for event in events:
            message, claim, notice = event.message, event.claim, event.notice
            if notice.action is Action.APPLY_REBALANCE_POLICY:
                annotation, time = early_drains.AT_RISK, message.event.time
            else:
                annotation, time = early_drains.MAINTENANCE, notice.effective_at or message.event.time
            if claim.metadata.deletion_timestamp is not None:
                continue
            if claim.metadata.annotations.get(annotation) == time.isoformat():
                self.report["duplicate"] += 1
                continue
            try:
                self.client.patch(
                    resources.NODE_CLAIMS.path(claim.name),
                    {"metadata": {"annotations": {annotation: time.isoformat()}}},
                )
            except NotFoundError:
                continue
            except ApiError as error:
                self.logger.warning(
                    "Handling an event failed and is tried again", extra={"nodeclaim": claim.name, "why": str(error)}
                )
                failed.add(message.id)
                continue
            self.report["marked"] += 1
            self.recorder.record(claim.ref, "Warning", notice.reason, notice.message)
        return failed

    def _has_marked_node_claims(self) -> bool:
        now = self.now()
        return any(early_drains.is_marked(c, now=now) for c in self.node_claims.all_by_instance().values())

    def _replace_marked(self, now: datetime) -> None:
        """Replace the marked nodes that may be replaced now."""
        lease = lease_state(self.client, cluster=self.cluster, now=now)
        snapshot = lease.on(without_standbys(read_snapshot(self.client, now=now)))
        plan = early_drains.plan_drains(snapshot, scheduled=self._scheduled(snapshot, now), now=now)
        for node in plan.cordon:
            self.drainer.cordon(node)
            self.report["cordoned"] += 1
        if not plan.drains:
            return
        self.drainer.mark_offerings_unavailable(
            (d.claim for d in plan.drains if d.at_risk), reason="RebalanceRecommended"
        )
        drains = self._with_room(plan.drains, snapshot)
        not_drained = self.drainer.cordon_and_drain(drains)
        self.report["replaced"] += len(drains) - len(not_drained)
        for drain in drains:
            self.recorder.record(drain.claim.ref, "Normal", drain.reason, drain.message)

    def _scheduled(self, snapshot: Snapshot, now: datetime) -> Mapping[str, datetime]:
        """When EC2's scheduled events start, by instance id; EC2 is asked only if maintenance is announced."""
        if not early_drains.has_maintenance(snapshot.node_claims):
            return {}
        return scheduled_events(self.ec2(), now=now, logger=self.logger) or {}

    def _with_room(self, planned: Sequence[EarlyDrain], snapshot: Snapshot) -> list[Drain]:
        """Launch for the nodes' pods; returns the drains of forced nodes and of those whose pods fit elsewhere."""
        nodes = frozenset(d.node for d in planned if d.node)
        provisioned = self.replacements.launch(nodes)
        delayed = delayed_pods(provisioned, nodes) if provisioned is not None else {}
        return [
            _drain(early, delayed.get(early.node, {}))
            for early in planned
            if early.forced or (provisioned is not None and _pods_fit(early, snapshot, provisioned))
        ]


def _drain(early: EarlyDrain, delayed: DelayedPods) -> Drain:
    why = "AWS Health announces maintenance of its instance, which EC2 doesn't list"
    if early.at_risk:
        why = "EC2 recommends replacing its instance"
    elif early.confirmed:
        why = "its instance has scheduled maintenance"
    return Drain(
        claim=early.claim,
        effective_at=early.deadline,
        reason="DisruptionTerminating",
        message=f"replaced: {why}",
        delayed_pods=delayed,
    )


def _pods_fit(early: EarlyDrain, snapshot: Snapshot, provisioned: ProvisioningReport) -> bool:
    """Whether all pods of the node were scheduled elsewhere, and every NodeClaim got its instance."""
    pods = {p.key for p in snapshot.pods if early.node and p.spec.node_name == early.node}
    return not provisioned.unlaunched and not pods & provisioned.unschedulable
