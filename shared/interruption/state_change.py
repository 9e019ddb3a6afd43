"""An instance stops or is terminated, whoever asked for it."""

from __future__ import annotations

from shared.interruption.notice import Ask, Detail, Notice, text

SOURCE = "aws.ec2"
DETAIL_TYPE = "EC2 Instance State-change Notification"

_REASONS = {
    "stopping": "InstanceStopping",
    "stopped": "InstanceStopping",
    "shutting-down": "InstanceTerminating",
    "terminated": "InstanceTerminating",
}


def parse(detail: Detail) -> Notice:
    """A machine that goes is drained as far as it still can be; one that comes concerns nobody here."""
    instance = text(detail, "instance-id")
    state = text(detail, "state")
    reason = _REASONS.get(state)
    return Notice(
        instance_ids=(instance,),
        ask=Ask.NOTHING if reason is None else Ask.DRAIN,
        reason=reason or "InstanceStarting",
        message=f"instance {instance} is {state}",
    )
