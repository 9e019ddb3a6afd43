"""An interruptible capacity reservation is reclaimed, or a capacity block ends, and the instances in it go with it.

Samples: AWS's pages "Monitor interruptible Capacity Reservations" and "Monitor Capacity Blocks using EventBridge" (EC2
User Guide). Both say when the instance is terminated.
"""

from __future__ import annotations

from datetime import datetime

from functions.interruption.messages.notice import TWO_MINUTES, Basis, Detail, Notice, moment, reclaimed, text
from shared.api.meta import EventReason

SOURCE = "aws.ec2"
DETAIL_TYPE = "EC2 Capacity Reservation Instance Interruption Warning"


def parse(detail: Detail, time: datetime) -> Notice:
    """The instance goes when the event says, two minutes from it if it doesn't, and the offering is gone."""
    instance = text(detail, "instance-id")
    return reclaimed(
        instance,
        by=moment(detail, "instance-termination-time", datetime.fromisoformat) or time + TWO_MINUTES,
        reason=EventReason("CapacityReservationInterrupted"),
        message=f"the capacity reservation of instance {instance} is reclaimed",
        basis=Basis.RESERVED,
    )
