"""The disruption methods in order of priority, and the three questions that each of them answers.

Each also says whether it needs instance types and prices, which cost calls of AWS.

Unhealthy nodes come first, then empty ones, then nodes that must be replaced. Consolidation comes last, with what the
budgets still allow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from shared.disruption import consolidation, drift, emptiness, expiration, repair, static_disruption

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shared.disruption.budgets import BudgetTracker
    from shared.disruption.candidates import Candidate
    from shared.disruption.command import Command, MethodResult
    from shared.disruption.disruption_state import DisruptionState


class Method(Protocol):
    """One reason to disrupt nodes."""

    REASON: str
    NEEDS_PRICES: bool
    """Whether :meth:`compute` needs the state's instance types and prices, if there are candidates."""

    def find_candidates(self, state: DisruptionState) -> tuple[Candidate, ...]:
        """The nodes that should be disrupted, blocked or not."""
        ...

    def compute(self, state: DisruptionState, budgets: BudgetTracker, should_stop: Callable[[], bool]) -> MethodResult:
        """The commands to execute now; nodes that they disrupt are consumed from the budgets."""
        ...

    def validate(self, command: Command, state: DisruptionState, budgets: BudgetTracker) -> str:
        """Why a command can't be executed on the cluster as it is now; empty when it can."""
        ...


METHODS: tuple[Method, ...] = (repair, emptiness, static_disruption, expiration, drift, consolidation)
FAST_METHODS: tuple[Method, ...] = METHODS[:-1]
"""Those that compute in milliseconds, so that they run while the lease is held."""
BY_REASON: Mapping[str, Method] = {m.REASON: m for m in METHODS}
WITHDRAWALS: tuple[Callable[[DisruptionState], Mapping[str, str]], ...] = (repair.withdrawn,)
"""Which claims in the queue have lost the reason for which they were queued, and why, by name. Only a reason that may
pass while replacements start is listed."""


def withdrawn(state: DisruptionState) -> Mapping[str, str]:
    """All claims of :data:`WITHDRAWALS`."""
    return {name: why for claims in WITHDRAWALS for name, why in claims(state).items()}
