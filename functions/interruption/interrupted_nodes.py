"""Interrupted nodes: drained at once, with replacements launched meanwhile.

The steps are ordered so that an invocation may end after any of them: mark offerings as unavailable; cordon and drain
every node (its drain starts whatever happens next); make one scheduling decision for all their pods; start the drains.
Pods that fit on existing nodes are evicted at once, the others when their replacement node is registered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from functions.interruption import interruption_records
from functions.interruption.cordon_and_drain import Drain
from functions.interruption.deadline import earlier_deadline
from functions.interruption.replacement_launch import delayed_pods
from shared.base.struct import MutableStruct, Struct, with_fields
from shared.launch import boot_failures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from mypy_boto3_dynamodb import DynamoDBClient

    from functions.interruption.batch import Report
    from functions.interruption.cordon_and_drain import Drainer
    from functions.interruption.node_claim_lookup import NodeClaimLookup
    from functions.interruption.replacement_launch import ReplacementLaunch
    from functions.interruption.verification import VerifiedEvent
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.events import Recorder


class _DrainPlan(MutableStruct):
    """``message_ids`` are the messages about each drain, by name of the NodeClaim.

    ``interrupted`` are the names of NodeClaims whose interruption EC2 confirms.
    ``unfinished`` has NodeClaims of earlier deliveries that may not have been replaced, by message id.
    """

    drains: dict[str, Drain] = {}
    message_ids: dict[str, list[str]] = {}
    unavailable: dict[str, NodeClaim] = {}
    interrupted: frozenset[str] = frozenset()
    unfinished: dict[str, NodeClaim] = {}


class InterruptedNodes(Struct, kw_only=True):
    """The interrupted nodes of one invocation. ``table`` is DynamoDB's."""

    table: str
    node_claims: NodeClaimLookup
    drainer: Drainer
    replacements: ReplacementLaunch
    recorder: Recorder
    dynamodb: Callable[[], DynamoDBClient]
    now: Callable[[], datetime]
    report: Report

    def drain(self, events: Sequence[VerifiedEvent]) -> set[str]:
        """Drain the nodes and launch replacements; returns the ids of messages to redeliver."""
        plan = self._plan(events)
        self._record_boot_failures(events, plan)
        if plan.unavailable:
            self.drainer.mark_offerings_unavailable(plan.unavailable.values(), reason="Interrupted")
        drains = plan.drains = self.drainer.delayed(plan.drains)
        not_drained = self.drainer.cordon_and_drain(list(drains.values()))
        self.report["drained"] += len(drains) - len(not_drained)
        failed = {message_id for name in not_drained for message_id in plan.message_ids[name]}
        waiting = [d.claim for name, d in drains.items() if d.awaits_decision and name not in not_drained]
        if (drains or plan.unfinished) and not self._replace([*waiting, *plan.unfinished.values()], drains.values()):
            # One redelivered message is enough: a decision is made for all pods.
            failed.add(next(iter(plan.unfinished), events[0].message.id))
        self._record(plan)
        return failed

    def _plan(self, events: Iterable[VerifiedEvent]) -> _DrainPlan:
        """One drain for each NodeClaim, with the earliest interruption of its events; duplicates are counted."""
        now = self.now()
        plan = _DrainPlan()
        for event in events:
            message, claim, notice = event.message, event.claim, event.notice
            effective_at = (notice.effective_at or now) if event.confirmed else None
            planned = plan.drains.get(claim.name)
            if planned is not None and not _is_earlier(effective_at, planned.effective_at):
                self.report["duplicate"] += 1
                plan.message_ids[claim.name].append(message.id)
                continue
            if claim.metadata.deletion_timestamp is not None and (
                effective_at is None or earlier_deadline(claim, effective_at, now=now) is None
            ):
                # Drained before. If that invocation ended before the replacement, this one replaces the node.
                self.report["duplicate"] += not message.redelivered
                if message.redelivered:
                    plan.unfinished[message.id] = claim
                continue
            plan.drains[claim.name] = Drain(
                claim=claim,
                effective_at=effective_at,
                reason=notice.reason,
                message=notice.message,
                awaits_decision=notice.running,
            )
            plan.message_ids.setdefault(claim.name, []).append(message.id)
            if notice.offering_unavailable:
                plan.unavailable[claim.name] = claim
                plan.interrupted |= {claim.name} if event.confirmed else frozenset()
        return plan

    def _record_boot_failures(self, events: Iterable[VerifiedEvent], plan: _DrainPlan) -> None:
        """Remember machines that died at boot, so that their NodePools wait before they launch again."""
        for event in events:
            instance = event.instance
            if instance is None or event.claim.name not in plan.drains:
                continue
            if boot_failures.lacked_capacity(instance):
                plan.unavailable[event.claim.name] = event.claim
            elif boot_failures.has_failed_at_boot(event.claim, instance):
                boot_failures.remember(self.dynamodb(), self.table, event.claim, instance, now=self.now())
                reason = f"{event.notice.message} at boot: {instance.state_message or instance.state_reason}"
                drain = with_fields(plan.drains[event.claim.name], reason=boot_failures.BOOT_FAILED, message=reason)
                plan.drains[event.claim.name] = drain

    def _replace(self, waiting: Sequence[NodeClaim], drains: Iterable[Drain]) -> bool:
        """Schedule all pods, and start the drains that wait for that. False: unfinished, try again."""
        provisioned = self.replacements.launch(_node_names([*(d.claim for d in drains), *waiting]))
        if provisioned is None:
            return False
        delayed = delayed_pods(provisioned, _node_names(waiting))
        self.drainer.start({c.name: delayed.get(c.status.node_name, {}) for c in waiting})
        return not provisioned.throttled

    def _record(self, plan: _DrainPlan) -> None:
        """Record the drains as events and in the decision log, and the interruptions by pool."""
        for drain in plan.drains.values():
            self.recorder.record(drain.claim.ref, "Warning", drain.reason, drain.message)
        dynamodb, now = self.dynamodb(), self.now()
        interruption_records.record_drains(dynamodb, self.table, plan.drains.values(), now=now)
        if plan.interrupted:
            claims = self.node_claims.all_by_instance().values()
            interruption_records.record_pools(dynamodb, self.table, plan.interrupted, claims, now=now)


def _is_earlier(effective_at: datetime | None, planned: datetime | None) -> bool:
    """Whether an interruption is earlier than the planned one; None is never."""
    return effective_at is not None and (planned is None or effective_at < planned)


def _node_names(claims: Iterable[NodeClaim]) -> frozenset[str]:
    return frozenset(c.status.node_name for c in claims if c.status.node_name)
