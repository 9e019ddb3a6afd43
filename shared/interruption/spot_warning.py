"""EC2 takes a spot instance back in two minutes.

Sample: AWS's page "Spot Instance interruption notices" (EC2 User Guide). The event's time is when the notice was given.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from shared.interruption.notice import Ask, Detail, Notice, text

SOURCE = "aws.ec2"
DETAIL_TYPE = "EC2 Spot Instance Interruption Warning"
NOTICE = timedelta(minutes=2)


def parse(detail: Detail, time: datetime) -> Notice:
    """The instance goes in two minutes, and its offering is scarce now."""
    instance = text(detail, "instance-id")
    return Notice(
        instance_ids=(instance,),
        ask=Ask.GIVE_UP,
        reason="SpotInterrupted",
        message=f"EC2 takes spot instance {instance} back in two minutes",
        by=time + NOTICE,
        offering_gone=True,
    )
