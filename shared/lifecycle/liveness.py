"""Which claims have waited too long: launched within 5 minutes, registered within 15, or given up.

Rules: Karpenter's liveness (reference: karpenter.md, section 6).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from shared.api import nodeclaim
from shared.api.meta import condition, is_true

if TYPE_CHECKING:
    from datetime import datetime

    from shared.api.nodeclaim import NodeClaim

LAUNCH_TIMEOUT = timedelta(minutes=5)
REGISTRATION_TIMEOUT = timedelta(minutes=15)


@dataclass(frozen=True, kw_only=True)
class GivenUp:
    """Why a claim is deleted; the message is for a person."""

    reason: str
    message: str


def given_up(claim: NodeClaim, *, now: datetime) -> GivenUp | None:
    """Why the claim must go, or None while it may go on."""
    if claim.metadata.deletion_timestamp is not None or is_true(claim.status.conditions, nodeclaim.REGISTERED):
        return None
    created = claim.metadata.creation_timestamp or now
    launched = condition(claim.status.conditions, nodeclaim.LAUNCHED)
    if launched is None or launched.status != "True":
        if now - created < LAUNCH_TIMEOUT:
            return None
        why = launched.message if launched is not None and launched.message else "EC2 gave no instance"
        return GivenUp(reason="LaunchTimeout", message=f"not launched within {LAUNCH_TIMEOUT}: {why}")
    if now - (launched.last_transition_time or created) < REGISTRATION_TIMEOUT:
        return None
    return GivenUp(
        reason="RegistrationTimeout",
        message=(
            f"instance {claim.status.provider_id.rpartition('/')[2]} did not join the cluster within "
            f"{REGISTRATION_TIMEOUT}: look at its console output, its user data and the node role's access entry"
        ),
    )
