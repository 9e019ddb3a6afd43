"""The disruption methods in order of priority, and the three questions that each of them answers.

Each also says whether it needs instance types and prices, which cost calls of AWS.

Unhealthy nodes come first, then empty ones, then nodes that must be replaced. Consolidation comes last, with what the
budgets still allow. A method that NodePools turn on is imported only if one has (:class:`OptionalMethod`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from shared.disruption import consolidation, drift, emptiness, expiration, static_disruption
from shared.disruption.command import UNHEALTHY, MethodResult
from shared.disruption.disruption_queue import queue_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shared.disruption.budgets import BudgetTracker
    from shared.disruption.candidates import Candidate
    from shared.disruption.command import Command
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


class OptionalMethod:
    """A method behind its door: ``enter`` imports it if a NodePool has turned it on, and returns None if none has."""

    def __init__(self, reason: str, *, needs_prices: bool, enter: Callable[[DisruptionState], Method | None]) -> None:
        self.REASON = reason
        self.NEEDS_PRICES = needs_prices
        self._enter = enter

    def find_candidates(self, state: DisruptionState) -> tuple[Candidate, ...]:
        """The method's; none while it is off."""
        method = self._enter(state)
        return () if method is None else method.find_candidates(state)

    def compute(self, state: DisruptionState, budgets: BudgetTracker, should_stop: Callable[[], bool]) -> MethodResult:
        """The method's; nothing while it is off."""
        method = self._enter(state)
        return MethodResult() if method is None else method.compute(state, budgets, should_stop)

    def validate(self, command: Command, state: DisruptionState, budgets: BudgetTracker) -> str:
        """The method's; while it is off, no command of its is valid."""
        method = self._enter(state)
        return f"{self.REASON} was turned off" if method is None else method.validate(command, state, budgets)


def _node_repair(state: DisruptionState) -> Method | None:
    if not any(pool.has_node_repair for pool in state.snapshot.node_pools):
        return None
    from shared.disruption import repair

    return repair


def _withdrawn_repairs(state: DisruptionState) -> Mapping[str, str]:
    entries = (queue_entry(claim) for claim in state.snapshot.node_claims)
    if not any(entry is not None and entry.reason == UNHEALTHY for entry in entries):
        return {}
    from shared.disruption import repair

    return repair.withdrawn(state)


METHODS: tuple[Method, ...] = (
    OptionalMethod(UNHEALTHY, needs_prices=True, enter=_node_repair),
    emptiness,
    static_disruption,
    expiration,
    drift,
    consolidation,
)
FAST_METHODS: tuple[Method, ...] = METHODS[:-1]
"""Those that compute in milliseconds, so that they run while the lease is held."""
BY_REASON: Mapping[str, Method] = {m.REASON: m for m in METHODS}
WITHDRAWALS: tuple[Callable[[DisruptionState], Mapping[str, str]], ...] = (_withdrawn_repairs,)
"""Which claims in the queue have lost the reason for which they were queued, and why, by name. Only a reason that may
pass while replacements start is listed."""


def withdrawn(state: DisruptionState) -> Mapping[str, str]:
    """All claims of :data:`WITHDRAWALS`."""
    return {name: why for claims in WITHDRAWALS for name, why in claims(state).items()}
