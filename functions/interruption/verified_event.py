"""The events of a batch about managed instances that EC2 doesn't contradict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.api.standby import standby_state
from shared.interruptions.state_change import STOPPING

if TYPE_CHECKING:
    from functions.interruption.batch import Message
    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import Instance
    from shared.interruptions.notice import Notice


def is_stopped_on_purpose(notice: Notice, claim: NodeClaim) -> bool:
    """Whether the instance of a standby node stops, as it does before it is kept; failed starts are found by sweeps."""
    return notice.reason == STOPPING and bool(standby_state(claim))


@dataclass(frozen=True, kw_only=True)
class VerifiedEvent:
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
