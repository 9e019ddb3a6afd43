"""Whether EC2 confirms an event: false events are dropped, and unconfirmed ones set no deadline.

Events are not signed, so a forged one that gets past every policy looks like any other; but EC2 can be called. Dropping
a true warning costs more than following a false one, and EC2's answers may lag ("Eventual consistency in the Amazon EC2
API", EC2 Developer Guide). So only what never changes about an instance (its capacity type) contradicts a warning at
once. The status of a spot request changes with the warning: it is "immediately set" to
``instance-terminated-no-capacity``, two minutes before the instance is terminated ("Spot request status", EC2 User
Guide). While it is still ``fulfilled``, the warning is followed without the part that can't be undone: the deadline
that overrides PodDisruptionBudgets. An instance that has ended is unknown to EC2 at first if it died soon after its
launch; why it died is needed before its NodeClaim goes. If EC2 doesn't answer, every event about one instance is
accepted. A message of AWS Health may name all instances, so each is followed only if EC2 lists a scheduled event of it.
"""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.base.struct import Struct
from shared.interruptions.notice import Evidence

if TYPE_CHECKING:
    from datetime import datetime

    from shared.cloud_provider import Instance

STATE_LAG = timedelta(seconds=15)
"""An instance that EC2 reports as running this long after a contrary event is running; sweeps check it anyway."""
SPOT_STATUS_LAG = timedelta(seconds=45)
"""How long the spot request is described again: a deadline that is set later leaves pods no grace period."""
SCHEDULE_LAG = timedelta(minutes=2)
"""How long EC2 is asked again for the scheduled event that AWS Health announces; it is days ahead."""
_FULFILLED = "fulfilled"
"""The status of a spot request whose instance runs and is not being interrupted."""
_RUNNING_STATES = frozenset({"pending", "running"})
UNKNOWN = "unknown"
"""The state of an instance that EC2's answer doesn't have."""


class InstanceFacts(Struct, kw_only=True):
    """What EC2 reports about an instance: state, capacity type, and the spot request's status ("" if unknown).

    ``state`` is :data:`UNKNOWN` for an instance that EC2 doesn't describe.
    ``instance`` is None where the spot request alone is evidence enough. ``scheduled_at`` is when the first scheduled
    event of it starts.
    """

    state: str
    capacity_type: str
    spot_status: str = ""
    instance: Instance | None = None
    scheduled_at: datetime | None = None


class Verdict(Enum):
    """How an event is treated."""

    CONFIRMED = "confirmed"
    """Act on it."""
    UNCONFIRMED = "unconfirmed"
    """Act on it without a deadline, and verify it again."""
    PENDING = "pending"
    """Don't act on it yet, and verify it again."""
    CONTRADICTED = "contradicted"
    """Drop it."""


def verify(evidence: Evidence, facts: InstanceFacts | None, *, age: timedelta) -> Verdict:
    """The verdict on an event of that age; ``facts`` None: EC2 didn't answer."""
    if evidence is Evidence.SCHEDULED:
        return _verify_schedule(facts, age)
    if facts is not None and facts.state == UNKNOWN and evidence is Evidence.NOT_RUNNING and age < STATE_LAG:
        return Verdict.PENDING
    if facts is None or evidence is Evidence.NONE or facts.state not in _RUNNING_STATES:
        # An instance that isn't running any more has ended, whatever the event said.
        return Verdict.CONFIRMED
    if evidence is Evidence.NOT_RUNNING:
        return Verdict.PENDING if age < STATE_LAG else Verdict.CONTRADICTED
    if evidence is Evidence.RESERVED:
        # AWS doesn't document whether EC2 names a reclaimed reservation until its instances are terminated.
        verdicts = {names.RESERVED: Verdict.CONFIRMED, names.SPOT: Verdict.CONTRADICTED}
        return verdicts.get(facts.capacity_type, Verdict.UNCONFIRMED)
    return _verify_spot(evidence, facts)


def _verify_spot(evidence: Evidence, facts: InstanceFacts) -> Verdict:
    if facts.capacity_type != names.SPOT:
        return Verdict.CONTRADICTED
    confirmed = evidence is Evidence.SPOT or facts.spot_status != _FULFILLED
    return Verdict.CONFIRMED if confirmed else Verdict.UNCONFIRMED


def _verify_schedule(facts: InstanceFacts | None, age: timedelta) -> Verdict:
    """The verdict on a scheduled event that is announced: without an answer of EC2 it isn't followed."""
    if facts is None or (facts.scheduled_at is None and age < SCHEDULE_LAG):
        return Verdict.PENDING
    return Verdict.CONTRADICTED if facts.scheduled_at is None else Verdict.CONFIRMED
