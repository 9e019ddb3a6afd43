"""What the reboot of a node needs next. Pure: the NodeClaim, its node and pods in; one :class:`RebootStep` out.

A reboot is a repetition of such steps. What was done follows from the objects, so that it survives a crash between any
two writes: a boot ID that isn't the recorded one says that the call was made, whoever made it. Rules: Karpenter's
nodeclaim/reboot (docs/facts/karpenter-1.15.md, "Repair and reboot").
"""

from __future__ import annotations

from datetime import timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import reboot
from shared.api.duration import DurationError
from shared.api.meta import is_true
from shared.api.nodeclaim import forced_expiration_time
from shared.base.struct import Struct
from shared.termination.drain import eviction_step

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from shared.api.kubernetes import Node, Pod
    from shared.api.nodeclaim import NodeClaim

RECOVERY_TIME = timedelta(minutes=20)
"""How long after the call a node may take to be Ready with another boot ID."""
CALL_TIME = timedelta(minutes=5)
"""How long the call is tried."""
LEAST_DRAIN = timedelta(seconds=5)
"""How long a drain takes at least: pods may be on their way to the node."""


class Action(Enum):
    """What is done for a reboot in one reconcile."""

    WAIT = auto()
    DRAIN = auto()
    CALL = auto()
    ISSUE = auto()
    """The call was made: the node is no longer initialized."""
    OBSERVE = auto()
    SUCCEED = auto()
    FAIL = auto()
    """The NodeClaim is deleted, and so replaced."""
    EXPIRE = auto()
    """The NodeClaim is deleted, because its expiration can't wait any longer."""
    REFUSE = auto()
    """The request can't be read; the node stays as it is."""


class RebootStep(Struct, kw_only=True):
    """What to do now. ``evict`` are the pods to evict in a drain; ``message`` says why the reboot fails."""

    action: Action
    evict: tuple[Pod, ...] = ()
    message: str = ""


WAIT = RebootStep(action=Action.WAIT)
CALL = RebootStep(action=Action.CALL)
ISSUE = RebootStep(action=Action.ISSUE)


def reboot_step(claim: NodeClaim, node: Node | None, pods: Iterable[Pod], *, now: datetime) -> RebootStep:
    """What to do now for a NodeClaim that is rebooting, and isn't being deleted."""
    expires = forced_expiration_time(claim)
    if expires is not None and expires <= now:
        message = f"older than expireAfter {claim.spec.expire_after}, and terminationGracePeriod has ended"
        return RebootStep(action=Action.EXPIRE, message=message)
    phase = reboot.phase(claim)
    if phase == reboot.ISSUED:
        return _recovery_step(claim, node, now)
    if phase != reboot.REQUESTED:
        return WAIT
    try:
        period = reboot.grace_period(claim)
    except DurationError as error:
        return RebootStep(action=Action.REFUSE, message=f"invalid reboot request: {error}")
    if node is None or names.PRE_BOOT_ID in claim.metadata.annotations:
        return _call_step(claim, node, now)
    return _drain_step(claim, pods, period, now)


def has_booted(claim: NodeClaim, node: Node) -> bool:
    """Whether the node has booted since its boot ID was recorded."""
    return node.status.node_info.boot_id != claim.metadata.annotations.get(names.PRE_BOOT_ID, "")


def _recovery_step(claim: NodeClaim, node: Node | None, now: datetime) -> RebootStep:
    if node is not None and has_booted(claim, node) and is_true(node.status.conditions, "Ready"):
        return RebootStep(action=Action.SUCCEED)
    since = reboot.issued_at(claim)
    if since is not None and now - since > RECOVERY_TIME:
        minutes = RECOVERY_TIME // timedelta(minutes=1)
        return _failed(f"the node isn't back {minutes} minutes after its reboot was called")
    return RebootStep(action=Action.OBSERVE) if node is not None else WAIT


def _call_step(claim: NodeClaim, node: Node | None, now: datetime) -> RebootStep:
    """The step once the boot ID is recorded, or without a node to drain."""
    if node is not None and has_booted(claim, node):
        return ISSUE
    since = reboot.called_at(claim) or (reboot.requested_at(claim) if node is None else None)
    if since is not None and now - since > CALL_TIME:
        minutes = CALL_TIME // timedelta(minutes=1)
        return _failed(f"the reboot couldn't be called within {minutes} minutes")
    return CALL if node is not None else WAIT


def _drain_step(claim: NodeClaim, pods: Iterable[Pod], period: timedelta | None, now: datetime) -> RebootStep:
    """The step until the node is drained, or the time for it is over; with a period of 0 it isn't drained at all."""
    drained_for = now - (reboot.requested_at(claim) or now)
    if period is not None and (not period or drained_for >= max(period, LEAST_DRAIN)):
        return CALL
    step = eviction_step(pods, now=now)
    if step.drained and drained_for >= LEAST_DRAIN:
        return CALL
    return RebootStep(action=Action.DRAIN, evict=step.evict)


def _failed(message: str) -> RebootStep:
    return RebootStep(action=Action.FAIL, message=message)
