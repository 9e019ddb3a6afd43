"""The events of a batch that are acted on: current, about managed instances, and not contradicted by EC2.

What EC2's answer means is decided in :mod:`shared.interruptions.event_verification`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from functions.interruption.deadline import is_terminated_by_tenon
from functions.interruption.early_drains import share_allowed
from shared.api import labels as names
from shared.api.standby import standby_state
from shared.base.struct import MutableStruct, Struct
from shared.cloud_provider import instance_id
from shared.interruptions.event_verification import SPOT_STATUS_LAG, Verdict, verify
from shared.interruptions.instance_lookup import instance_facts
from shared.interruptions.notice import Action, Evidence
from shared.interruptions.state_change import STOPPING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from aws_lambda_powertools import Logger
    from mypy_boto3_ec2 import EC2Client

    from functions.interruption.batch import Message, Report
    from functions.interruption.node_claim_lookup import NodeClaimLookup
    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import Instance
    from shared.interruptions.event_verification import InstanceFacts
    from shared.interruptions.notice import Notice


class VerifiedEvent(Struct, kw_only=True):
    """An event about a managed instance that EC2 doesn't contradict.

    ``confirmed``: EC2 confirms it, so the drain gets a deadline that overrides PodDisruptionBudgets. ``instance`` is
    what EC2 describes, if it was asked.
    """

    message: Message
    claim: NodeClaim
    confirmed: bool
    instance: Instance | None = None

    @property
    def notice(self) -> Notice:
        """What the event announces."""
        return self.message.event.notice


class Verification(MutableStruct, kw_only=True):
    """Verifies the events of one invocation, and counts in the report those that are dropped."""

    node_claims: NodeClaimLookup
    ec2: Callable[[], EC2Client]
    report: Report
    now: Callable[[], datetime]
    logger: Logger
    _share: dict[str, int] = {}

    def verify(self, messages: Sequence[Message]) -> tuple[list[VerifiedEvent], set[str]]:
        """The events to act on, and the ids of messages to redeliver and verify again.

        Raises:
            ApiError: the NodeClaims can't be listed.
        """
        messages = [m for m in messages if m.event.notice.action is not Action.NO_ACTION and not self._is_expired(m)]
        managed = self._about_managed_instances(messages)
        now = self.now()
        unexpected = [(m, c) for m, c in managed if not is_terminated_by_tenon(c)]
        facts_by_instance = self._facts(unexpected)
        verified: list[VerifiedEvent] = []
        verify_again: set[str] = set()
        for message, claim in unexpected:
            if message.event.notice.evidence is Evidence.SCHEDULED:
                # Each instance of it is verified when its node is to be replaced (early_drains), and again until then.
                verified.append(VerifiedEvent(message=message, claim=claim, confirmed=False))
                continue
            age = now - message.event.time
            facts = facts_by_instance.get(instance_id(claim.status.provider_id))
            verdict = self._bounded(verify(message.event.notice.evidence, facts, age=age), message, claim, age=age)
            if verdict is Verdict.CONTRADICTED:
                self._report_contradicted(message, claim, facts)
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

    def _bounded(self, verdict: Verdict, message: Message, claim: NodeClaim, *, age: timedelta) -> Verdict:
        """The verdict; an improbable event that EC2 doesn't confirm waits for a share of its NodePool, briefly."""
        improbable = verdict is Verdict.UNCONFIRMED and _is_improbable(message.event.notice, claim)
        if not improbable or self._take_share(claim):
            return verdict
        return Verdict.PENDING if age < SPOT_STATUS_LAG else Verdict.CONTRADICTED

    def _take_share(self, claim: NodeClaim) -> bool:
        """Whether the limit of nodes that are drained because of messages alone allows one more of the NodePool."""
        if claim.metadata.deletion_timestamp is not None:
            return True
        if not self._share:
            self._share.update(share_allowed(self.node_claims.all_by_instance().values(), counts=lambda _: True))
        pool = claim.metadata.labels.get(names.NODEPOOL, "")
        self._share[pool] = self._share.get(pool, 0) - 1
        return self._share[pool] >= 0

    def _is_expired(self, message: Message) -> bool:
        expired = self.now() - message.event.time > message.event.notice.valid_for
        self.report["expired"] += expired
        return expired

    def _about_managed_instances(self, messages: Sequence[Message]) -> list[tuple[Message, NodeClaim]]:
        if not messages:
            return []
        ids = {i for m in messages for i in m.event.notice.instance_ids}
        claims = self.node_claims.for_instances(ids, latest_event=max(m.event.time for m in messages))
        named = [(m, claims[i]) for m in messages for i in m.event.notice.instance_ids if i in claims]
        pairs = [(m, c) for m, c in named if not _is_stopped_on_purpose(m.event.notice, c)]
        self.report["unmanaged"] += len(messages) - len({m.id for m, _ in named})
        return pairs

    def _facts(self, pairs: Iterable[tuple[Message, NodeClaim]]) -> Mapping[str, InstanceFacts]:
        """What EC2 reports about the instances, as far as it is evidence; EC2 is called only for these."""
        evidence: dict[str, set[Evidence]] = {}
        for message, claim in pairs:
            if message.event.notice.evidence not in {Evidence.NONE, Evidence.SCHEDULED}:
                evidence.setdefault(instance_id(claim.status.provider_id), set()).add(message.event.notice.evidence)
        return instance_facts(self.ec2(), evidence, now=self.now(), logger=self.logger) if evidence else {}

    def _report_contradicted(self, message: Message, claim: NodeClaim, facts: InstanceFacts | None) -> None:
        self.report["contradicted"] += 1
        self.logger.warning(
            "Dropped an event that EC2 contradicts or doesn't confirm",
            extra={"nodeclaim": claim.name, "reason": message.event.notice.reason, "why": str(facts)},
        )


def _is_improbable(notice: Notice, claim: NodeClaim) -> bool:
    """Whether a reservation's interruption is announced of an instance that was launched without one.

    An open reservation may have taken it in, but EC2 doesn't say so: many such messages at once are hardly true.
    """
    return notice.evidence is Evidence.RESERVED and claim.metadata.labels.get(names.CAPACITY_TYPE) != names.RESERVED


def _is_stopped_on_purpose(notice: Notice, claim: NodeClaim) -> bool:
    """Whether the instance of a standby node stops, as it does before it is kept; failed starts are found by sweeps."""
    return notice.reason == STOPPING and bool(standby_state(claim))
