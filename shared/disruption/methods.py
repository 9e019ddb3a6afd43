"""The methods in the order in which they are asked, and the three questions that each of them answers.

What nobody needs goes first, what must be replaced next; savings are looked for last, in what is left of the budgets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from shared.disruption import consolidation, drift, emptiness, expiration, static_disruption

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shared.disruption.budgets import Slots
    from shared.disruption.candidates import Candidate
    from shared.disruption.cluster_state import View
    from shared.disruption.command import Action, Command


class Method(Protocol):
    """One reason to disrupt nodes."""

    REASON: str

    def find(self, view: View) -> tuple[Candidate, ...]:
        """The nodes that it concerns, whether or not they may go."""
        ...

    def command(self, view: View, slots: Slots, should_stop: Callable[[], bool]) -> Command:
        """What to do with them now; what it chooses is taken from the slots."""
        ...

    def still_valid(self, action: Action, view: View, slots: Slots) -> str:
        """Why an action can't be carried out on the cluster as it is now; empty when it can."""
        ...


METHODS: tuple[Method, ...] = (emptiness, static_disruption, expiration, drift, consolidation)
PROMPT: tuple[Method, ...] = METHODS[:4]
"""Those that answer at once, so that they may be asked under the lease."""
BY_REASON: Mapping[str, Method] = {m.REASON: m for m in METHODS}
