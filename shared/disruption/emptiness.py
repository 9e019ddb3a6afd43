"""Nodes that run nothing but daemons, for as long as their pool's consolidateAfter says.

Since when a node has been empty is kept on its claim as the condition ``Empty``, so that any function, warm or new,
knows it, and a hint that comes twice doesn't start the time anew. A node that pods are about to use isn't empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shared.api import nodeclaim
from shared.api.duration import parse_duration
from shared.api.meta import condition, with_condition
from shared.disruption import candidates
from shared.disruption.cluster_state import workload_pods
from shared.disruption.command import EMPTY, BlockedCandidate, Command, MethodResult, Removal

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from shared.api.nodeclaim import NodeClaim
    from shared.disruption.budgets import BudgetTracker
    from shared.disruption.candidates import Candidate
    from shared.disruption.cluster_state import ClusterState

REASON = EMPTY


@dataclass(frozen=True, kw_only=True)
class EmptyConditionChange:
    """A claim whose ``Empty`` condition has to change."""

    claim: NodeClaim
    is_empty: bool


def empty_condition_changes(view: ClusterState) -> tuple[EmptyConditionChange, ...]:
    """Which claims' ``Empty`` condition has to change."""
    changed = []
    for claim, node in view.initialized:
        held = workload_pods(view.pods.get(node.metadata.name, ()))
        is_empty = not held and not {node.metadata.name, claim.name} & view.nominated
        before = condition(claim.status.conditions, nodeclaim.EMPTY)
        if is_empty != (before is not None and before.status == "True"):
            changed.append(EmptyConditionChange(claim=claim, is_empty=is_empty))
    return tuple(changed)


def with_empty_condition(claim: NodeClaim, *, is_empty: bool, now: datetime) -> NodeClaim:
    """The claim with its ``Empty`` condition set, and the time of its last pod event where Karpenter looks for it."""
    conditions = with_condition(
        claim.status.conditions,
        nodeclaim.EMPTY,
        status=is_empty,
        reason="NoPods" if is_empty else "HasPods",
        now=now,
    )
    return replace(claim, status=replace(claim.status, conditions=conditions, last_pod_event_time=now))


def find_candidates(view: ClusterState) -> tuple[Candidate, ...]:
    """The nodes that are empty and have been told so on their claims (:func:`empty_condition_changes`)."""
    return tuple(
        c
        for c in candidates.dynamic_candidates(view)
        if not workload_pods(view.pods.get(c.name, ()))
        and not {c.name, c.claim.name} & view.nominated
        and _since(c.claim) is not None
    )


def compute(view: ClusterState, slots: BudgetTracker, _should_stop: Callable[[], bool] = bool) -> MethodResult:
    """Which empty nodes go now, each by itself, which may not, and when the next one's time is up."""
    actions: list[Command] = []
    refused: list[BlockedCandidate] = []
    waits: list[datetime] = []
    for candidate in find_candidates(view):
        since = _since(candidate.claim)
        after = parse_duration(candidate.pool.spec.disruption.consolidate_after)
        if after is None or since is None:
            continue
        claim, node = candidate.claim.name, candidate.name
        if since + after > view.now:
            waits.append(since + after)
            continue
        obstacle = candidates.do_not_disrupt_blocker(view, candidate)
        obstacle = obstacle or slots.blocker(candidate.pool.name, EMPTY)
        if obstacle is not None:
            price = view.price(candidate.claim)
            refused.append(BlockedCandidate(claim=claim, node=node, reason=EMPTY, blocker=obstacle, savings=price))
            continue
        slots.consume(candidate.pool.name)
        message = f"empty for {(view.now - since).total_seconds():.0f} s (consolidateAfter "
        message += f"{candidate.pool.spec.disruption.consolidate_after})"
        removal = Removal(claim=claim, node=node, reason=EMPTY, message=message)
        actions.append(Command(removals=(removal,), savings=view.price(candidate.claim) or 0.0))
    return MethodResult(commands=tuple(actions), blocked=tuple(refused), requeue_at=min(waits, default=None))


def validate(action: Command, view: ClusterState, _slots: BudgetTracker) -> str:
    """Why it can't go after all; empty when it can."""
    empty = {c.name for c in find_candidates(view)}
    return next((f"node {name} is in use again" for name in action.nodes if name not in empty), "")


def _since(claim: NodeClaim) -> datetime | None:
    found = condition(claim.status.conditions, nodeclaim.EMPTY)
    return found.last_transition_time if found is not None and found.status == "True" else None
