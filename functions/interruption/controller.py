"""The interruption controller: drains and replaces interrupted nodes at once, and replaces others before they must go.

EC2 is called first to verify the events. The steps for interrupted nodes are ordered so that an invocation may end
after any of them: mark offerings as unavailable; cordon and drain every node (its drain starts whatever happens next);
make one scheduling decision for all their pods; start the drains. Pods that fit on existing nodes are evicted at once,
the others when their replacement node is registered. While another function holds the lease, the decision is tried
again. Nodes at risk and nodes with maintenance ahead are replaced first and drained afterwards.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from botocore.exceptions import BotoCoreError, ClientError

from functions.interruption import interruption_records, proactive_replacement
from functions.interruption.cordon_and_drain import Drain, Drainer
from functions.interruption.deadline import earlier_deadline, is_terminated_by_tenon
from functions.interruption.node_claim_lookup import NodeClaimLookup
from functions.interruption.verified_event import VerifiedEvent, is_stopped_on_purpose
from shared.base import aws, runtime
from shared.cloud_provider import instance_id
from shared.cluster import resources
from shared.cluster.cluster_pause import cluster_pause
from shared.cluster.connect import connect
from shared.cluster.errors import ApiError, NotFoundError
from shared.cluster.events import recorder
from shared.cluster.lease import LeaseHeldError, LeaseLostError
from shared.cluster.snapshot_reader import list_node_pools, read_snapshot
from shared.instance_types.catalog_store import CatalogMissingError
from shared.interruptions.event_verification import SPOT_STATUS_LAG, Verdict, verify
from shared.interruptions.instance_lookup import instance_facts
from shared.interruptions.notice import Action, Evidence
from shared.launch import boot_failures
from shared.provisioning.provisioner import provisioner_of
from shared.standby.held_nodes import without_standbys
from shared.termination import delayed_eviction

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from functions.interruption.batch import Message
    from functions.interruption.proactive_replacement import Replacement
    from functions.interruption.settings import InterruptionSettings
    from shared.api.nodeclaim import NodeClaim
    from shared.provisioning.launch_records import ProvisioningReport
    from shared.snapshot import Snapshot
    from shared.termination.delayed_eviction import DelayedPods

_LEASE_ATTEMPTS = 8
_LEASE_RETRY_SECONDS = 0.5
"""Decisions take a few seconds at most. After that the message is redelivered; the drains start without a decision."""

ReportKey = Literal[
    "drained",
    "marked",
    "replaced",
    "cordoned",
    "launched",
    "ignored",
    "unmanaged",
    "expired",
    "duplicate",
    "contradicted",
]
"""Nodes, but for ``ignored``, ``unmanaged``, ``expired``, ``duplicate`` and ``contradicted``, which are messages."""
Report = Counter[ReportKey]
"""The results of a batch, for its log line and metrics."""


@dataclass
class _DrainPlan:
    """``message_ids`` are the messages about each drain, by name of the NodeClaim.

    ``interrupted`` are the names of NodeClaims whose interruption EC2 confirms.
    ``unfinished`` has NodeClaims of earlier deliveries that may not have been replaced, by message id.
    """

    drains: dict[str, Drain] = field(default_factory=dict)
    message_ids: dict[str, list[str]] = field(default_factory=dict)
    unavailable: dict[str, NodeClaim] = field(default_factory=dict)
    interrupted: frozenset[str] = frozenset()
    unfinished: dict[str, NodeClaim] = field(default_factory=dict)


class InterruptionController:
    """Handles the batch of one invocation. ``until``: no further launch round is started after it."""

    def __init__(
        self, settings: InterruptionSettings, *, run: str, until: datetime, report: Report, logger: Logger
    ) -> None:
        self._settings = settings
        self._run = run
        self._until = until
        self._report = report
        self._logger = logger
        self._client = connect(settings)
        self._recorder = recorder(self._client)
        self._node_claims = NodeClaimLookup(self._client)
        self._drainer = Drainer(client=self._client, settings=settings, logger=logger)

    def reconcile(self, messages: Sequence[Message], *, sweep: bool) -> frozenset[str]:
        """Act on the messages; returns the ids of those to redeliver.

        Raises:
            ApiError: the NodeClaims can't be listed.
        """
        messages = [m for m in messages if m.event.notice.action is not Action.NO_ACTION and not self._is_expired(m)]
        events, failed = self._verify(self._about_managed_instances(messages))
        failed |= self._drain_interrupted([e for e in events if e.notice.action is Action.CORDON_AND_DRAIN])
        announced = [e for e in events if e.notice.action is not Action.CORDON_AND_DRAIN]
        announced = self._without_ignored(announced)
        failed |= self._mark_announced(announced)
        if announced or sweep:
            self._replace_proactively(newly_marked=bool(announced))
        return frozenset(failed)

    def _is_expired(self, message: Message) -> bool:
        expired = runtime.current().now() - message.event.time > message.event.notice.valid_for
        self._report["expired"] += expired
        return expired

    def _about_managed_instances(self, messages: Sequence[Message]) -> list[tuple[Message, NodeClaim]]:
        if not messages:
            return []
        ids = {i for m in messages for i in m.event.notice.instance_ids}
        claims = self._node_claims.for_instances(ids, latest_event=max(m.event.time for m in messages))
        named = [(m, claims[i]) for m in messages for i in m.event.notice.instance_ids if i in claims]
        pairs = [(m, c) for m, c in named if not is_stopped_on_purpose(m.event.notice, c)]
        self._report["unmanaged"] += len(messages) - len({m.id for m, _ in named})
        return pairs

    def _verify(self, pairs: Sequence[tuple[Message, NodeClaim]]) -> tuple[list[VerifiedEvent], set[str]]:
        """The events that EC2 doesn't contradict, and the ids of messages to redeliver and verify again."""
        now = runtime.current().now()
        unexpected = [(m, c) for m, c in pairs if not is_terminated_by_tenon(c)]
        evidence: dict[str, set[Evidence]] = {}
        for message, claim in unexpected:
            if message.event.notice.evidence is not Evidence.NONE:
                evidence.setdefault(instance_id(claim.status.provider_id), set()).add(message.event.notice.evidence)
        facts_by_instance = instance_facts(evidence, logger=self._logger) if evidence else {}
        verified: list[VerifiedEvent] = []
        verify_again: set[str] = set()
        for message, claim in unexpected:
            age = now - message.event.time
            facts = facts_by_instance.get(instance_id(claim.status.provider_id))
            verdict = verify(message.event.notice.evidence, facts, age=age)
            if verdict is Verdict.CONTRADICTED:
                self._report["contradicted"] += 1
                self._logger.warning(
                    "Dropped an event that EC2 contradicts",
                    extra={"nodeclaim": claim.name, "reason": message.event.notice.reason, "why": str(facts)},
                )
                continue
            unconfirmed = verdict is Verdict.UNCONFIRMED
            if verdict is Verdict.PENDING or (unconfirmed and age < SPOT_STATUS_LAG):
                verify_again.add(message.id)
            if verdict is not Verdict.PENDING:
                instance = facts.instance if facts is not None else None
                verified.append(
                    VerifiedEvent(message=message, claim=claim, confirmed=not unconfirmed, instance=instance)
                )
        return verified, verify_again

    # --- interrupted nodes ---

    def _drain_interrupted(self, events: Sequence[VerifiedEvent]) -> set[str]:
        """Drain the nodes and launch replacements; returns the ids of messages to redeliver."""
        plan = self._plan_drains(events)
        drains = plan.drains
        self._record_boot_failures(events, plan)
        if plan.unavailable:
            self._drainer.mark_offerings_unavailable(plan.unavailable.values(), reason="Interrupted")
        not_drained = self._drainer.cordon_and_drain(list(drains.values()))
        self._report["drained"] += len(drains) - len(not_drained)
        failed = {message_id for name in not_drained for message_id in plan.message_ids[name]}
        waiting = [d.claim for name, d in drains.items() if d.awaits_decision and name not in not_drained]
        if (drains or plan.unfinished) and not self._replace_all(
            [*waiting, *plan.unfinished.values()], drains.values()
        ):
            # One redelivered message is enough: a decision is made for all pods.
            failed.add(next(iter(plan.unfinished), events[0].message.id))
        for drain in drains.values():
            self._recorder.record(drain.claim.ref, "Warning", drain.reason, drain.message)
        interruption_records.record_drains(self._settings.table_name, drains.values(), logger=self._logger)
        if plan.interrupted:
            claims = self._node_claims.all_by_instance().values()
            interruption_records.record_pools(self._settings.table_name, plan.interrupted, claims, logger=self._logger)
        return failed

    def _record_boot_failures(self, events: Sequence[VerifiedEvent], plan: _DrainPlan) -> None:
        """Remember machines that died at boot, so that their NodePools wait before they launch again."""
        now = runtime.current().now()
        for event in events:
            instance = event.instance
            if instance is None or event.claim.name not in plan.drains:
                continue
            if boot_failures.lacked_capacity(instance):
                plan.unavailable[event.claim.name] = event.claim
            elif boot_failures.has_failed_at_boot(event.claim, instance):
                try:
                    boot_failures.remember(aws.dynamodb(), self._settings.table_name, event.claim, instance, now=now)
                except (BotoCoreError, ClientError) as error:
                    self._logger.warning(
                        "A failure at boot is not remembered", extra={"nodeclaim": event.claim.name, "why": str(error)}
                    )
                reason = f"{event.notice.message} at boot: {instance.state_message or instance.state_reason}"
                drain = replace(plan.drains[event.claim.name], reason=boot_failures.BOOT_FAILED, message=reason)
                plan.drains[event.claim.name] = drain

    def _plan_drains(self, events: Sequence[VerifiedEvent]) -> _DrainPlan:
        """One drain for each NodeClaim, with the earliest interruption of its events; duplicates are counted."""
        now = runtime.current().now()
        plan = _DrainPlan()
        for event in events:
            message, claim, notice = event.message, event.claim, event.notice
            effective_at = (notice.effective_at or now) if event.confirmed else None
            planned = plan.drains.get(claim.name)
            if planned is not None and not _is_earlier(effective_at, planned.effective_at):
                self._report["duplicate"] += 1
                plan.message_ids[claim.name].append(message.id)
                continue
            if claim.metadata.deletion_timestamp is not None and (
                effective_at is None or earlier_deadline(claim, effective_at, now=now) is None
            ):
                # Drained before. If that invocation ended before the replacement, this one replaces the node.
                self._report["duplicate"] += not message.redelivered
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

    def _replace_all(self, waiting: Sequence[NodeClaim], drains: Iterable[Drain]) -> bool:
        """Schedule all pods, and start the drains that wait for that. False: unfinished, try again."""
        provisioned = self._provision(_node_names([*(d.claim for d in drains), *waiting]))
        if provisioned is None:
            return False
        delayed = _delayed_pods(provisioned, _node_names(waiting))
        self._drainer.start({c.name: delayed.get(c.status.node_name, {}) for c in waiting})
        return not provisioned.throttled

    def _provision(self, leaving: frozenset[str]) -> ProvisioningReport | None:
        """Schedule the pods of those nodes elsewhere and launch NodeClaims for them; None: failed, try again."""
        for _ in range(_LEASE_ATTEMPTS):
            try:
                provisioned = provisioner_of(self._settings, by="interruption", run=self._run, logger=self._logger).run(
                    leaving=leaving, until=self._until
                )
            except (LeaseHeldError, LeaseLostError) as error:
                if runtime.current().now() >= self._until:
                    break
                self._logger.info("Waiting for the lease", extra={"why": str(error)})
                runtime.current().sleep(_LEASE_RETRY_SECONDS)
                continue
            except (ApiError, BotoCoreError, CatalogMissingError, ClientError) as error:
                self._logger.warning(
                    "Launching replacements failed and is tried again",
                    extra={"error": type(error).__name__, "why": str(error)},
                )
                return None
            self._report["launched"] += len(provisioned.launched)
            return provisioned
        self._logger.info("Launching replacements is tried again later: the lease is held")
        return None

    # --- nodes at risk, and nodes with maintenance ahead ---

    def _without_ignored(self, events: Sequence[VerifiedEvent]) -> list[VerifiedEvent]:
        """The events without the rebalance recommendations that NodePools ignore, which only record an event."""
        if not any(e.notice.action is Action.APPLY_REBALANCE_POLICY for e in events):
            return list(events)
        pools = list_node_pools(self._client)
        followed = []
        for event in events:
            claim, notice = event.claim, event.notice
            is_recommendation = notice.action is Action.APPLY_REBALANCE_POLICY
            if is_recommendation and proactive_replacement.is_ignored(claim, pools):
                self._report["ignored"] += 1
                self._recorder.record(claim.ref, "Normal", notice.reason, notice.message)
            else:
                followed.append(event)
        return followed

    def _mark_announced(self, events: Sequence[VerifiedEvent]) -> set[str]:
        """Write each announcement to its NodeClaim; returns the ids of messages to redeliver."""
        failed = set()
        for event in events:
            message, claim, notice = event.message, event.claim, event.notice
            if notice.action is Action.APPLY_REBALANCE_POLICY:
                annotation, time = proactive_replacement.AT_RISK, message.event.time
            else:
                annotation, time = proactive_replacement.MAINTENANCE, notice.effective_at or message.event.time
            if claim.metadata.deletion_timestamp is not None:
                continue
            if claim.metadata.annotations.get(annotation) == time.isoformat():
                self._report["duplicate"] += 1
                continue
            try:
                self._client.patch(
                    resources.NODE_CLAIMS.path(claim.name),
                    {"metadata": {"annotations": {annotation: time.isoformat()}}},
                )
            except NotFoundError:
                continue
            except ApiError as error:
                self._logger.warning(
                    "Handling an event failed and is tried again", extra={"nodeclaim": claim.name, "why": str(error)}
                )
                failed.add(message.id)
                continue
            self._report["marked"] += 1
            self._recorder.record(claim.ref, "Warning", notice.reason, notice.message)
        return failed

    def _replace_proactively(self, *, newly_marked: bool) -> None:
        """Replace the marked nodes that may be replaced now; the others stay marked until a later sweep."""
        now = runtime.current().now()
        if not newly_marked and not self._has_marked_node_claims(now):
            return
        pause = cluster_pause(self._client, cluster=self._settings.cluster_name, now=now)
        snapshot = replace(without_standbys(read_snapshot(self._client, now=now)), pause=pause)
        plan = proactive_replacement.plan_replacements(snapshot, now=now)
        for node in plan.cordon:
            self._drainer.cordon(node)
            self._report["cordoned"] += 1
        if not plan.replacements:
            return
        self._drainer.mark_offerings_unavailable(
            (r.claim for r in plan.replacements if r.at_risk), reason="RebalanceRecommended"
        )
        drains = self._provision_for(plan.replacements, snapshot)
        not_drained = self._drainer.cordon_and_drain(drains)
        self._report["replaced"] += len(drains) - len(not_drained)
        for drain in drains:
            self._recorder.record(drain.claim.ref, "Normal", drain.reason, drain.message)

    def _has_marked_node_claims(self, now: datetime) -> bool:
        return any(proactive_replacement.is_marked(c, now=now) for c in self._node_claims.all_by_instance().values())

    def _provision_for(self, replacements: Sequence[Replacement], snapshot: Snapshot) -> list[Drain]:
        """Launch for the nodes' pods; returns the drains of forced nodes and of those whose pods fit elsewhere."""
        nodes = frozenset(r.node for r in replacements if r.node)
        provisioned = self._provision(nodes)
        delayed = _delayed_pods(provisioned, nodes) if provisioned is not None else {}
        return [
            _drain(replacement, delayed.get(replacement.node, {}))
            for replacement in replacements
            if replacement.forced or (provisioned is not None and _pods_fit(replacement, snapshot, provisioned))
        ]


def _is_earlier(effective_at: datetime | None, planned: datetime | None) -> bool:
    """Whether an interruption is earlier than the planned one; None is never."""
    return effective_at is not None and (planned is None or effective_at < planned)


def _node_names(claims: Iterable[NodeClaim]) -> frozenset[str]:
    return frozenset(c.status.node_name for c in claims if c.status.node_name)


def _delayed_pods(provisioned: ProvisioningReport, nodes: frozenset[str]) -> dict[str, DelayedPods]:
    """By node, the pods that wait for a replacement."""
    pods = provisioned.snapshot.pods if provisioned.snapshot is not None else ()
    return delayed_eviction.delayed_by_node(
        pods, nodes, arriving=provisioned.nominated_claims, unplaced=provisioned.unschedulable
    )


def _drain(replacement: Replacement, delayed_pods: DelayedPods) -> Drain:
    why = "EC2 recommends replacing its instance" if replacement.at_risk else "its instance has scheduled maintenance"
    return Drain(
        claim=replacement.claim,
        effective_at=replacement.deadline,
        reason="DisruptionTerminating",
        message=f"replaced: {why}",
        delayed_pods=delayed_pods,
    )


def _pods_fit(replacement: Replacement, snapshot: Snapshot, provisioned: ProvisioningReport) -> bool:
    """Whether all pods of the node were scheduled elsewhere, and every NodeClaim got its instance."""
    pods = {p.key for p in snapshot.pods if replacement.node and p.spec.node_name == replacement.node}
    return not provisioned.unlaunched and not pods & provisioned.unschedulable
