"""Emptiness: nodes without workload pods for longer than their pool's consolidateAfter.

The condition ``Empty`` on the claim keeps since when a node has been empty. So every function knows it, warm or cold,
and a message that arrives twice doesn't restart the time. A node that is nominated for pods isn't empty, nor is one
that has room of CapacityBuffers which no other node has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import nodeclaim
from shared.api.duration import parse_duration
from shared.api.meta import condition, with_condition
from shared.base.struct import Struct, with_fields
from shared.disruption.candidates import do_not_disrupt_blocker, dynamic_candidates, initialized_nodes
from shared.disruption.command import EMPTY, BlockedCandidate, Command, MethodResult
from shared.disruption.disruption_state import workload_pods

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from shared.api.nodeclaim import NodeClaim
    from shared.disruption.budgets import BudgetTracker
    from shared.disruption.candidates import Candidate
    from shared.disruption.disruption_state import DisruptionState

REASON = EMPTY
NEEDS_PRICES = False


class EmptyConditionChange(Struct, kw_only=True):
    """A claim whose ``Empty`` condition has to change."""

    claim: NodeClaim
    is_empty: bool


def empty_condition_changes(state: DisruptionState) -> tuple[EmptyConditionChange, ...]:
    """The claims whose ``Empty`` condition has to change."""
    changes = []
    for claim, node in initialized_nodes(state):
        is_empty = _is_empty(state, node.metadata.name, claim.name)
        current = condition(claim.status.conditions, nodeclaim.EMPTY)
        if is_empty != (current is not None and current.status == "True"):
            changes.append(EmptyConditionChange(claim=claim, is_empty=is_empty))
    return tuple(changes)


def with_empty_condition(claim: NodeClaim, *, is_empty: bool, now: datetime) -> NodeClaim:
    """The claim with its ``Empty`` condition, and ``now`` as Karpenter's time of the last pod event."""
    conditions = with_condition(
        claim.status.conditions,
        nodeclaim.EMPTY,
        status=is_empty,
        reason="NoPods" if is_empty else "HasPods",
        now=now,
        generation=claim.metadata.generation,
    )
    return with_fields(claim, status=with_fields(claim.status, conditions=conditions, last_pod_event_time=now))


def find_candidates(state: DisruptionState) -> tuple[Candidate, ...]:
    """The nodes that are empty and whose claims have the condition ``Empty``."""
    return tuple(
        c
        for c in dynamic_candidates(state)
        if _is_empty(state, c.name, c.claim.name) and _empty_since(c.claim) is not None
    )


def compute(state: DisruptionState, budgets: BudgetTracker, _should_stop: Callable[[], bool] = bool) -> MethodResult:
    """One command for each empty node whose consolidateAfter is over and that isn't blocked."""
    commands: list[Command] = []
    blocked: list[BlockedCandidate] = []
    due_times: list[datetime] = []
    for candidate in find_candidates(state):
        since = _empty_since(candidate.claim)
        consolidate_after = candidate.pool.spec.disruption.consolidate_after
        delay = parse_duration(consolidate_after)
        if delay is None or since is None:
            continue
        if since + delay > state.now:
            due_times.append(since + delay)
            continue
        price = state.price(candidate.claim)
        blocker = do_not_disrupt_blocker(state, candidate) or budgets.blocker(candidate.pool.name, EMPTY)
        if blocker is not None:
            blocked.append(candidate.blocked(blocker, reason=EMPTY, savings=price))
            continue
        budgets.consume(candidate.pool.name)
        message = f"empty for {(state.now - since).total_seconds():.0f} s (consolidateAfter {consolidate_after})"
        commands.append(Command(removals=(candidate.removal(reason=EMPTY, message=message),), savings=price or 0.0))
    return MethodResult(commands=tuple(commands), blocked=tuple(blocked), requeue_at=min(due_times, default=None))


def validate(command: Command, state: DisruptionState, _budgets: BudgetTracker) -> str:
    """Why the command can't be executed; empty when it can."""
    empty = {c.name for c in find_candidates(state)}
    return next((f"node {name} is no longer empty" for name in command.nodes if name not in empty), "")


def _is_empty(state: DisruptionState, node: str, claim: str) -> bool:
    expected = state.nominated | state.chunks.keys()
    return not workload_pods(state.pods.get(node, ())) and not {node, claim} & expected


def _empty_since(claim: NodeClaim) -> datetime | None:
    empty = condition(claim.status.conditions, nodeclaim.EMPTY)
    return empty.last_transition_time if empty is not None and empty.status == "True" else None
