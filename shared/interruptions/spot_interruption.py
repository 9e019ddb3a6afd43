"""Spot instance interruption warning: EC2 interrupts a spot instance in two minutes.

Sample: AWS's page "Spot Instance interruption notices" (EC2 User Guide). The event's time is the time of the warning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.meta import EventReason
from shared.interruptions.notice import (
    TWO_MINUTES,
    Detail,
    Evidence,
    Notice,
    interruption_notice,
    required_text,
)

if TYPE_CHECKING:
    from datetime import datetime

SOURCE = "aws.ec2"
DETAIL_TYPE = "EC2 Spot Instance Interruption Warning"


def parse(detail: Detail, time: datetime) -> Notice:
    """The instance is interrupted in two minutes, and its offering is unavailable."""
    instance_id = required_text(detail, "instance-id")
    return interruption_notice(
        instance_id,
        effective_at=time + TWO_MINUTES,
        reason=EventReason("SpotInterrupted"),
        message=f"EC2 interrupts spot instance {instance_id} in two minutes",
        evidence=Evidence.SPOT_INTERRUPTED,
    )
