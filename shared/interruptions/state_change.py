"""Instance state-change notification: an instance stops or is terminated, whoever requested it.

Sample: AWS's page "State change events for Amazon EC2 instances" (EC2 User Guide).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from shared.api.meta import EventReason
from shared.interruptions.notice import VALIDITY, Action, Detail, Evidence, Notice, required_text

SOURCE = "aws.ec2"
DETAIL_TYPE = "EC2 Instance State-change Notification"
SHUTDOWN_TIMEOUT = timedelta(minutes=2)
"""How long the operating system may take to shut down; the drain is ended after that."""

STOPPING = EventReason("InstanceStopping")
_REASONS = {
    "stopping": STOPPING,
    "stopped": STOPPING,
    "shutting-down": EventReason("InstanceTerminating"),
    "terminated": EventReason("InstanceTerminating"),
}


def parse(detail: Detail, time: datetime) -> Notice:
    """A stopping instance is drained as far as possible, an ended one is removed; a starting one needs no action."""
    instance_id = required_text(detail, "instance-id")
    state = required_text(detail, "state")
    reason = _REASONS.get(state)
    return Notice(
        instance_ids=(instance_id,),
        action=Action.NO_ACTION if reason is None else Action.CORDON_AND_DRAIN,
        reason=reason or "InstanceStarting",
        message=f"instance {instance_id} is {state}",
        evidence=Evidence.NOT_RUNNING,
        effective_at=time + SHUTDOWN_TIMEOUT if state == "stopping" else time,
        running=False,
        valid_for=VALIDITY,
    )
