"""Liveness of NodeClaims: one that is not launched within 5 minutes, or not registered within 15, is deleted.

Pure. Rules: Karpenter's nodeclaim/lifecycle/liveness.go (docs/facts/karpenter.md, section 6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import EventReason, condition, is_true
from shared.api.nodeclaim import LAUNCH_TIMEOUT, REGISTRATION_TIMEOUT, expiration_time
from shared.base.struct import Struct

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from shared.api.meta import Condition
    from shared.api.nodeclaim import NodeClaim


class LivenessFailure(Struct, kw_only=True):
    """Why a NodeClaim is deleted."""

    reason: str
    message: str


def is_launch_overdue(claim: NodeClaim, *, server_now: datetime) -> bool:
    """Whether the NodeClaim has had no instance for longer than the launch time-out.

    ``server_now`` is the time by the API server's clock, which says when the NodeClaim was created.
    """
    return (
        claim.metadata.deletion_timestamp is None
        and not is_true(claim.status.conditions, nodeclaim.LAUNCHED)
        and server_now - (claim.metadata.creation_timestamp or server_now) >= LAUNCH_TIMEOUT
    )


def liveness_failure(
    claim: NodeClaim, *, now: datetime, server_now: datetime | None = None, unassigned_instance: str = ""
) -> LivenessFailure | None:
    """Why the NodeClaim is deleted, or None while it may stay. ``server_now``: by the API server's clock, if not now.

    ``unassigned_instance`` is the id of a living instance of the NodeClaim's launch group that has no NodeClaim: the
    function that launched it died before it wrote the status. The next run of the provisioner assigns it, so the
    NodeClaim then gets the registration time-out. So does one whose launch is unconfirmed.
    """
    if claim.metadata.deletion_timestamp is not None or is_true(claim.status.conditions, nodeclaim.REGISTERED):
        return None
    age = (server_now or now) - (claim.metadata.creation_timestamp or server_now or now)
    launched = condition(claim.status.conditions, nodeclaim.LAUNCHED)
    if launched is not None and launched.status == "True":
        since_launch = now - launched.last_transition_time if launched.last_transition_time is not None else age
        is_expired = since_launch >= REGISTRATION_TIMEOUT
        return _not_registered(claim) if is_expired else None
    if unassigned_instance:
        is_expired = age >= REGISTRATION_TIMEOUT
        return _not_assigned(unassigned_instance) if is_expired else None
    unconfirmed = launched is not None and launched.reason == nodeclaim.LAUNCH_UNCONFIRMED
    timeout = REGISTRATION_TIMEOUT if unconfirmed else LAUNCH_TIMEOUT
    return _not_launched(launched, timeout) if age >= timeout else None


def standalone_expiration(claim: NodeClaim, *, now: datetime) -> LivenessFailure | None:
    """That the NodeClaim has no NodePool, whose disruption would replace it, and is older than its expireAfter."""
    if names.NODEPOOL in claim.metadata.labels or claim.metadata.deletion_timestamp is not None:
        return None
    expires = expiration_time(claim)
    if expires is None or now < expires:
        return None
    return LivenessFailure(
        reason=EventReason("Expired"),
        message=f"older than expireAfter {claim.spec.expire_after}, and without a NodePool",
    )


def _not_launched(launched: Condition | None, timeout: timedelta) -> LivenessFailure:
    cause = launched.message if launched is not None and launched.message else "no launch was recorded"
    return LivenessFailure(reason=EventReason("LaunchTimeout"), message=f"not launched within {timeout}: {cause}")


def _not_assigned(unassigned_instance: str) -> LivenessFailure:
    return LivenessFailure(
        reason=EventReason("RegistrationTimeout"),
        message=f"instance {unassigned_instance} was launched but not assigned within {REGISTRATION_TIMEOUT}",
    )


def _not_registered(claim: NodeClaim) -> LivenessFailure:
    return LivenessFailure(
        reason=EventReason("RegistrationTimeout"),
        message=(
            f"instance {claim.status.provider_id.rpartition('/')[2]} did not register within {REGISTRATION_TIMEOUT}: "
            "check its console output, its user data and the node role's access entry"
        ),
    )
