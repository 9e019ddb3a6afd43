"""Nodes that are older than their claim's expireAfter.

They go gracefully: replaced first, within budgets and their windows, and not while a pod or a user keeps them. Only a
claim with a terminationGracePeriod has an end to that: so long after it expired it goes, whatever stands in the way,
and its drain has the same time once more. Karpenter deletes expired claims at once; waiting for the window is what its
users ask for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.duration import DurationError, parse_duration
from shared.disruption import candidates, graceful_replacement
from shared.disruption.command import EXPIRED, Command, MethodResult, Removal

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta

    from shared.api.nodeclaim import NodeClaim
    from shared.disruption.budgets import BudgetTracker
    from shared.disruption.candidates import Candidate
    from shared.disruption.cluster_state import ClusterState

REASON = EXPIRED


def expiration_time(claim: NodeClaim) -> datetime | None:
    """When the claim expires; None: never."""
    after = _duration(claim.spec.expire_after)
    created = claim.metadata.creation_timestamp
    return None if after is None or created is None else created + after


def forced_expiration_time(claim: NodeClaim) -> datetime | None:
    """When the claim goes, whatever stands in the way; None: never."""
    expires = expiration_time(claim)
    grace = _duration(claim.spec.termination_grace_period or "Never")
    return None if expires is None or grace is None else expires + grace


def disruption_message(view: ClusterState, candidate: Candidate) -> str:
    """How the node has expired, in words; empty when it has not."""
    when = expiration_time(candidate.claim)
    expired = when is not None and when <= view.now
    return f"older than expireAfter {candidate.claim.spec.expire_after}" if expired else ""


def find_candidates(view: ClusterState) -> tuple[Candidate, ...]:
    """The nodes that have expired, the longest expired first."""
    found = [
        (when, c)
        for c in candidates.all_candidates(view)
        if (when := expiration_time(c.claim)) is not None and when <= view.now
    ]
    return tuple(c for _, c in sorted(found, key=lambda f: (f[0], f[1].name)))


def compute(view: ClusterState, slots: BudgetTracker, _should_stop: Callable[[], bool] = bool) -> MethodResult:
    """Those whose time is over at once, the others in succession (static pools have a way of their own)."""
    forced: list[Command] = []
    graceful: list[Candidate] = []
    for candidate in find_candidates(view):
        last = forced_expiration_time(candidate.claim)
        if last is not None and last <= view.now:
            message = disruption_message(view, candidate)
            message += f", and terminationGracePeriod ended at {last:%Y-%m-%d %H:%M:%S} UTC"
            removal = Removal(
                claim=candidate.claim.name,
                node=candidate.name,
                reason=EXPIRED,
                message=message,
                pods=tuple(p.key for p in candidate.pods),
            )
            forced.append(Command(removals=(removal,), forced=True))
        elif candidate.pool.spec.replicas is None:
            graceful.append(candidate)
    found = graceful_replacement.compute(
        view, slots, [(c, disruption_message(view, c)) for c in graceful], reason=EXPIRED
    )
    moments = [
        m
        for c in candidates.all_candidates(view)
        for m in (expiration_time(c.claim), forced_expiration_time(c.claim))
        if m is not None
    ]
    return MethodResult(
        commands=(*forced, *found.commands),
        blocked=found.blocked,
        requeue_at=min((m for m in moments if m > view.now), default=None),
    )


def validate(action: Command, view: ClusterState, _slots: BudgetTracker) -> str:
    """Why it can't go after all; empty when it can."""
    return "" if action.forced else graceful_replacement.validate(action, view)


def _duration(text: str) -> timedelta | None:
    try:
        return parse_duration(text)
    except DurationError:
        return None
