"""Capacity reservation interruption warning: an interruptible reservation is reclaimed, or a capacity block ends.

Samples: AWS's pages "Monitor interruptible Capacity Reservations" and "Monitor Capacity Blocks using EventBridge" (EC2
User Guide). Both say when the instances of the reservation are terminated.
"""

from __future__ import annotations

from datetime import datetime

from shared.api.meta import EventReason
from shared.interruptions.notice import (
    TWO_MINUTES,
    Detail,
    Evidence,
    Notice,
    interruption_notice,
    optional_time,
    required_text,
)

SOURCE = "aws.ec2"
DETAIL_TYPE = "EC2 Capacity Reservation Instance Interruption Warning"


def parse(detail: Detail, time: datetime) -> Notice:
    """The instance is terminated at the stated time, else two minutes after the event; its offering is unavailable."""
    instance_id = required_text(detail, "instance-id")
    terminated_at = optional_time(detail, "instance-termination-time", datetime.fromisoformat)
    return interruption_notice(
        instance_id,
        effective_at=terminated_at or time + TWO_MINUTES,
        reason=EventReason("CapacityReservationInterrupted"),
        message=f"the capacity reservation of instance {instance_id} is reclaimed",
        evidence=Evidence.RESERVED,
    )
