"""An instance stops or is terminated, whoever asked for it.

Sample: AWS's page "State change events for Amazon EC2 instances" (EC2 User Guide).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from functions.interruption.messages.notice import LONG_USE, Ask, Basis, Detail, Notice, text
from shared.api.meta import EventReason

SOURCE = "aws.ec2"
DETAIL_TYPE = "EC2 Instance State-change Notification"
STOPS_WITHIN = timedelta(minutes=2)
"""How long an operating system that shuts down may take; then what is left of the drain is finished."""

_REASONS = {
    "stopping": EventReason("InstanceStopping"),
    "stopped": EventReason("InstanceStopping"),
    "shutting-down": EventReason("InstanceTerminating"),
    "terminated": EventReason("InstanceTerminating"),
}


def parse(detail: Detail, time: datetime) -> Notice:
    """A machine that stops is drained as far as it still can be, one that is gone is finished with.

    One that comes concerns nobody here.
    """
    instance = text(detail, "instance-id")
    state = text(detail, "state")
    reason = _REASONS.get(state)
    return Notice(
        instance_ids=(instance,),
        ask=Ask.NOTHING if reason is None else Ask.GIVE_UP,
        reason=reason or "InstanceStarting",
        message=f"instance {instance} is {state}",
        basis=Basis.STOPPING,
        by=time + STOPS_WITHIN if state == "stopping" else time,
        works=False,
        use=LONG_USE,
    )
