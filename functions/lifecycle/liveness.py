"""Which claims have waited too long: launched within 5 minutes, registered within 15, or given up.

Rules: Karpenter's liveness (reference: karpenter.md, section 6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.api import nodeclaim
from shared.api.meta import EventReason, condition, is_true
from shared.api.nodeclaim import LAUNCH_TIMEOUT, REGISTRATION_TIMEOUT

if TYPE_CHECKING:
    from datetime import datetime

    from shared.api.nodeclaim import NodeClaim


@dataclass(frozen=True, kw_only=True)
class GivenUp:
    """Why a claim is deleted; the message is for a person."""

    reason: str
    message: str


def is_late(claim: NodeClaim, *, now: datetime) -> bool:
    """Whether the claim has waited for its instance for longer than a launch may take."""
    return (
        claim.metadata.deletion_timestamp is None
        and not is_true(claim.status.conditions, nodeclaim.LAUNCHED)
        and now - (claim.metadata.creation_timestamp or now) >= LAUNCH_TIMEOUT
    )


def given_up(claim: NodeClaim, *, now: datetime, undealt: str = "") -> GivenUp | None:
    """Why the claim must go, or None while it may go on.

    ``undealt`` is a living instance of the claim's launch group that no claim has yet: whoever launched it died before
    saying so, and the next run of the provisioner hands it over. It is waited for as long as for a node.
    """
    if claim.metadata.deletion_timestamp is not None or is_true(claim.status.conditions, nodeclaim.REGISTERED):
        return None
    created = claim.metadata.creation_timestamp or now
    launched = condition(claim.status.conditions, nodeclaim.LAUNCHED)
    if launched is None or launched.status != "True":
        why = launched.message if launched is not None and launched.message else "EC2 gave no instance"
        after, reason, message = (
            LAUNCH_TIMEOUT,
            EventReason("LaunchTimeout"),
            f"not launched within {LAUNCH_TIMEOUT}: {why}",
        )
        since = created
        if undealt:
            after, reason = REGISTRATION_TIMEOUT, EventReason("RegistrationTimeout")
            message = f"instance {undealt} was launched for it and not handed over within {REGISTRATION_TIMEOUT}"
    else:
        after, since, reason = (
            REGISTRATION_TIMEOUT,
            launched.last_transition_time or created,
            EventReason("RegistrationTimeout"),
        )
        message = (
            f"instance {claim.status.provider_id.rpartition('/')[2]} did not join the cluster within "
            f"{REGISTRATION_TIMEOUT}: look at its console output, its user data and the node role's access entry"
        )
    return GivenUp(reason=reason, message=message) if now - since >= after else None
