"""Expiration: nodes older than their claim's expireAfter.

They are replaced gracefully: replacements first, within budgets and their schedules, and not while a pod or an
annotation blocks it. A claim with a terminationGracePeriod has a deadline: that long after it expired it is deleted
regardless of blockers, and its drain may take the same time again. Karpenter deletes expired claims at once; Tenon
waits for the budgets' windows, as its users ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.nodeclaim import expiration_time, forced_expiration_time
from shared.disruption import graceful_disruption
from shared.disruption.candidates import all_candidates
from shared.disruption.command import EXPIRED, Command, MethodResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.disruption.budgets import BudgetTracker
    from shared.disruption.candidates import Candidate
    from shared.disruption.disruption_state import DisruptionState

REASON = EXPIRED
NEEDS_PRICES = True


def disruption_message(state: DisruptionState, candidate: Candidate) -> str:
    """That the node has expired; empty when it hasn't."""
    expires = expiration_time(candidate.claim)
    expired = expires is not None and expires <= state.now
    return f"older than expireAfter {candidate.claim.spec.expire_after}" if expired else ""


def find_candidates(state: DisruptionState) -> tuple[Candidate, ...]:
    """The nodes that have expired, in the order in which they expired."""
    times = ((expiration_time(c.claim), c) for c in all_candidates(state))
    expired = [(expires, c) for expires, c in times if expires is not None and expires <= state.now]
    return tuple(c for _, c in sorted(expired, key=lambda item: (item[0], item[1].name)))


def compute(state: DisruptionState, budgets: BudgetTracker, _should_stop: Callable[[], bool] = bool) -> MethodResult:
    """Forced commands for claims past their deadline; one graceful command for the first others that budgets allow.

    Static pools replace their expired nodes in :mod:`shared.disruption.static_disruption`.
    """
    forced: list[Command] = []
    graceful: list[tuple[Candidate, str]] = []
    for candidate in find_candidates(state):
        deadline = forced_expiration_time(candidate.claim)
        message = disruption_message(state, candidate)
        if deadline is not None and deadline <= state.now:
            message += f", and terminationGracePeriod ended at {deadline:%Y-%m-%d %H:%M:%S} UTC"
            forced.append(Command(removals=(candidate.removal(reason=EXPIRED, message=message),), forced=True))
        elif candidate.pool.spec.replicas is None:
            graceful.append((candidate, message))
    replaced = graceful_disruption.compute(state, budgets, graceful, reason=EXPIRED)
    times = (t for c in all_candidates(state) for t in (expiration_time(c.claim), forced_expiration_time(c.claim)))
    return MethodResult(
        commands=(*forced, *replaced.commands),
        blocked=replaced.blocked,
        requeue_at=min((t for t in times if t is not None and t > state.now), default=None),
    )


def validate(command: Command, state: DisruptionState, _budgets: BudgetTracker) -> str:
    """Why the command can't be executed; empty when it can."""
    return "" if command.forced else graceful_disruption.validate(command, state)
