"""Graceful disruption: nodes that must be replaced whatever that costs, as expiration and drift do it.

Replacements are launched first. One command covers as many nodes as budgets allow, up to a limit, so that a node that
can't be replaced doesn't delay many others. Where none can be replaced, one may go first
(:mod:`shared.disruption.terminate_first`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import nodeclaim
from shared.api.meta import condition
from shared.base.struct import Struct
from shared.disruption import terminate_first
from shared.disruption.candidates import Candidate, all_candidates, disruption_blocker
from shared.disruption.command import BlockedCandidate, Blocker, Command, MethodResult
from shared.disruption.disruption_queue import REPLACEMENT_TIMEOUT
from shared.disruption.simulated_scheduling import simulate_scheduling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.disruption.budgets import BudgetTracker
    from shared.disruption.disruption_state import DisruptionState
    from shared.disruption.simulated_scheduling import SimulationResult

    Reasons = Sequence[tuple[Candidate, str]]
    """Candidates, each with the message that says why it is replaced."""

MAX_CANDIDATES = 10
"""How many nodes one command replaces at most."""


class _Unreplaced(Struct):
    """A candidate whose pods can't all be scheduled elsewhere, why it is to be replaced, and what blocks that."""

    candidate: Candidate
    message: str
    blocker: Blocker


def compute(state: DisruptionState, budgets: BudgetTracker, wanted: Reasons, *, reason: str) -> MethodResult:
    """One command for the first candidates that aren't blocked, in the order given."""
    chosen, blocked = _unblocked(state, budgets, wanted, reason)
    chosen, late, unreplaced, simulation = _schedulable(state, chosen, reason)
    if simulation is None:
        command, unreplaceable = _one_first(state, unreplaced, reason)
    else:
        command = _replacement(state, chosen, simulation, reason)
        unreplaceable = [_blocked(state, u, reason) for u in unreplaced]
    pools = {c.claim.name: c.pool.name for c, _ in wanted}
    for removal in command.removals if command is not None else ():
        budgets.consume(pools[removal.claim])
    commands = () if command is None else (command,)
    return MethodResult(commands=commands, blocked=(*blocked, *late, *unreplaceable))


def _replacement(
    state: DisruptionState, chosen: Sequence[tuple[Candidate, str]], simulation: SimulationResult, reason: str
) -> Command:
    price = sum(state.price(c.claim) or 0.0 for c, _ in chosen)
    return Command(
        removals=tuple(c.removal(reason=reason, message=message) for c, message in chosen),
        replacements=simulation.node_claims,
        savings=price - simulation.price,
    )


def _one_first(
    state: DisruptionState, unreplaced: Sequence[_Unreplaced], reason: str
) -> tuple[Command | None, list[BlockedCandidate]]:
    """The command for the first candidate that may go before its replacement comes, and the others, blocked.

    A candidate whose replacement failed next to others is simulated alone first.
    """
    command: Command | None = None
    blocked: list[BlockedCandidate] = []
    for entry in unreplaced:
        outcome: Command | BlockedCandidate = _blocked(state, entry, reason)
        if command is None and terminate_first.can_help(state, entry.candidate):
            outcome = _alone(state, entry, reason)
        if isinstance(outcome, Command):
            command = outcome
        else:
            blocked.append(outcome)
    return command, blocked


def _alone(state: DisruptionState, entry: _Unreplaced, reason: str) -> Command | BlockedCandidate:
    candidate, message = entry.candidate, entry.message
    simulation = simulate_scheduling(state, [candidate])
    if simulation.all_scheduled:
        return _replacement(state, [(candidate, message)], simulation, reason)
    blocker = simulation.blocker(candidate) or entry.blocker
    return terminate_first.without_replacement(state, candidate, blocker, reason=reason, message=message)


def _blocked(state: DisruptionState, entry: _Unreplaced, reason: str) -> BlockedCandidate:
    return entry.candidate.blocked(terminate_first.explained(state, entry.candidate, entry.blocker), reason=reason)


def _unblocked(
    state: DisruptionState, budgets: BudgetTracker, wanted: Reasons, reason: str
) -> tuple[list[tuple[Candidate, str]], list[BlockedCandidate]]:
    """The first candidates that neither a blocker nor a budget keeps, and those that are blocked."""
    chosen: list[tuple[Candidate, str]] = []
    blocked: list[BlockedCandidate] = []
    remaining: dict[str, int] = {}
    for candidate, message in wanted:
        pool = candidate.pool.name
        remaining.setdefault(pool, budgets.remaining(pool, reason))
        blocker = disruption_blocker(state, candidate)
        if blocker is None and remaining[pool] < 1:
            blocker = budgets.exhausted(pool, reason)
        if blocker is None:
            together = [*(c.pods for c, _ in chosen), candidate.pods]
            if not state.pod_disruption_budgets.allow_together(together):
                text = "PodDisruptionBudgets allow evicting its pods only after those of other nodes"
                blocker = Blocker(message=text, by="PodDisruptionBudgets")
        if blocker is not None:
            blocked.append(candidate.blocked(blocker, reason=reason))
        elif len(chosen) < MAX_CANDIDATES:
            remaining[pool] -= 1
            chosen.append((candidate, message))
    return chosen, blocked


def _schedulable(
    state: DisruptionState, chosen: list[tuple[Candidate, str]], reason: str
) -> tuple[list[tuple[Candidate, str]], list[BlockedCandidate], list[_Unreplaced], SimulationResult | None]:
    """The candidates whose pods can all be scheduled elsewhere, those that wait for a node, the others.

    The last is the simulation without the others; None if no candidate is left.
    """
    unreplaced: list[_Unreplaced] = []
    late: list[BlockedCandidate] = []
    while chosen:
        simulation = simulate_scheduling(state, [c for c, _ in chosen])
        if simulation.all_scheduled:
            return chosen, late, unreplaced, simulation
        blockers = {c.name: blocker for c, _ in chosen if (blocker := simulation.blocker(c)) is not None}
        unreplaced += [_Unreplaced(c, message, blockers[c.name]) for c, message in chosen if c.name in blockers]
        # Without a blocker the pods need a node that isn't initialized yet: wait for it.
        if not blockers and (late_node := _late_node(state, simulation.uninitialized_nodes)) is not None:
            late += [c.blocked(late_node, reason=reason) for c, _ in chosen]
        chosen = [(c, message) for c, message in chosen if c.name not in blockers] if blockers else []
    return [], late, unreplaced, None


def _late_node(state: DisruptionState, uninitialized: Sequence[str]) -> Blocker | None:
    """The first of these nodes that should have been initialized long ago, and perhaps never is; None without one."""
    claims = {name: c for c in state.snapshot.node_claims for name in (c.name, c.status.node_name)}
    for name in uninitialized:
        claim = claims.get(name)
        created = claim.metadata.creation_timestamp if claim is not None else None
        if claim is not None and created is not None and state.now - created >= REPLACEMENT_TIMEOUT:
            initialized = condition(claim.status.conditions, nodeclaim.INITIALIZED)
            why = f": {initialized.message}" if initialized is not None and initialized.message else ""
            message = f"its pods would go to node {name}, which isn't initialized{why}"
            return Blocker(message=message, by=f"NodeClaim {claim.name}")
    return None


def validate(command: Command, state: DisruptionState) -> str:
    """Why the command can't be executed on the cluster as it is now; empty when it can."""
    candidates = {c.claim.name: c for c in all_candidates(state)}
    for removal in command.removals:
        candidate = candidates.get(removal.claim)
        if candidate is None:
            return f"node {removal.node} is no longer a candidate"
        blocker = disruption_blocker(state, candidate)
        if blocker is not None:
            return f"node {removal.node}: {blocker.message}"
        if {p.key for p in candidate.pods} - set(removal.pods):
            return f"node {removal.node} has new pods"
    return ""
