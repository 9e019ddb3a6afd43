"""The methods in the order in which they are asked, and the three questions that each of them answers.

What nobody needs goes first, what must be replaced next; savings are looked for last, in what is left of the budgets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from shared.disruption import consolidation, drift, emptiness, expiration, static_disruption

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shared.disruption.budgets import BudgetTracker
    from shared.disruption.candidates import Candidate
    from shared.disruption.cluster_state import ClusterState
    from shared.disruption.command import Command, MethodResult


class Method(Protocol):
    """One reason to disrupt nodes."""

    REASON: str

    def find_candidates(self, view: ClusterState) -> tuple[Candidate, ...]:
        """The nodes that it concerns, whether or not they may go."""
        ...

    def compute(self, view: ClusterState, slots: BudgetTracker, should_stop: Callable[[], bool]) -> MethodResult:
        """What to do with them now; what it chooses is taken from the slots."""
        ...

    def validate(self, action: Command, view: ClusterState, slots: BudgetTracker) -> str:
        """Why an action can't be carried out on the cluster as it is now; empty when it can."""
        ...


METHODS: tuple[Method, ...] = (emptiness, static_disruption, expiration, drift, consolidation)
FAST_METHODS: tuple[Method, ...] = METHODS[:4]
"""Those that answer at once, so that they may be asked under the lease."""
BY_REASON: Mapping[str, Method] = {m.REASON: m for m in METHODS}
