"""EC2 takes a spot instance back in two minutes.

Sample: AWS's page "Spot Instance interruption notices" (EC2 User Guide). The event's time is when the notice was given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from functions.interruption.messages.notice import TWO_MINUTES, Basis, Detail, Notice, reclaimed, text
from shared.api.meta import EventReason

if TYPE_CHECKING:
    from datetime import datetime

SOURCE = "aws.ec2"
DETAIL_TYPE = "EC2 Spot Instance Interruption Warning"


def parse(detail: Detail, time: datetime) -> Notice:
    """The instance goes in two minutes, and its offering is scarce now."""
    instance = text(detail, "instance-id")
    return reclaimed(
        instance,
        by=time + TWO_MINUTES,
        reason=EventReason("SpotInterrupted"),
        message=f"EC2 takes spot instance {instance} back in two minutes",
        basis=Basis.SPOT_TAKEN,
    )
