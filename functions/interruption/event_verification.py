"""Whether EC2 itself bears an event out: what is certainly false is dropped, what can't be known yet is bounded.

Events are not signed, so one that got past every policy looks like any other; EC2 can be asked. A true warning that is
dropped costs more than a false one that is followed, and what EC2 answers may lag behind what it does ("Eventual
consistency in the Amazon EC2 API", EC2 Developer Guide). So only what never changes about an instance (how it was
bought) denies a warning at once. A spot request's status changes with the warning (it is "immediately set" to
``instance-terminated-no-capacity``, two minutes before the instance goes: "Spot request status", EC2 User Guide), so
one that still is ``fulfilled`` takes from the warning only what nobody gets back: the deadline that overrides
PodDisruptionBudgets. Without an answer every event is believed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from functions.interruption.messages.notice import Basis
from shared.api import labels as names

SETTLED = timedelta(seconds=15)
"""A machine that EC2 still calls running so long after the event that says otherwise does run; a sweep looks anyway."""
ASKED_FOR = timedelta(seconds=45)
"""How long EC2 is asked again about a spot request: a deadline that is known later leaves pods no grace."""
_FULFILLED = "fulfilled"
"""The status of a spot request whose instance runs and is not taken back."""
_RUNS = frozenset({"pending", "running"})


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What EC2 says of an instance: its state, how it was bought, and its spot request's status ("" if unknown)."""

    state: str
    capacity_type: str
    spot_status: str = ""


class Verdict(Enum):
    """What is made of an event."""

    TRUE = "true"
    """Follow it."""
    UNCONFIRMED = "unconfirmed"
    """Follow it without a deadline, and ask again."""
    NOT_YET = "not yet"
    """Leave it, and ask again."""
    FALSE = "false"
    """Drop it."""


def weigh(basis: Basis, seen: Seen | None, *, age: timedelta) -> Verdict:
    """What to make of an event of that age; ``seen`` None: EC2 can't be asked, or doesn't know the instance."""
    if seen is None or basis is Basis.UNASKED or seen.state not in _RUNS:
        # What doesn't run any more goes, whatever the event called it.
        return Verdict.TRUE
    if basis is Basis.STOPPING:
        return Verdict.NOT_YET if age < SETTLED else Verdict.FALSE
    if basis is Basis.RESERVED:
        # Whether EC2 names a reclaimed reservation until its instances go is not documented.
        return {names.RESERVED: Verdict.TRUE, names.SPOT: Verdict.FALSE}.get(seen.capacity_type, Verdict.UNCONFIRMED)
    if seen.capacity_type != names.SPOT:
        return Verdict.FALSE
    taken = basis is Basis.SPOT or seen.spot_status != _FULFILLED
    return Verdict.TRUE if taken else Verdict.UNCONFIRMED
