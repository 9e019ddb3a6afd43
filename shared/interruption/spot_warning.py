"""EC2 takes a spot instance back in two minutes."""

from __future__ import annotations

from shared.interruption.notice import Ask, Detail, Notice, text

SOURCE = "aws.ec2"
DETAIL_TYPE = "EC2 Spot Instance Interruption Warning"


def parse(detail: Detail) -> Notice:
    """The instance must be drained, and its offering is scarce now."""
    instance = text(detail, "instance-id")
    return Notice(
        instance_ids=(instance,),
        ask=Ask.DRAIN,
        reason="SpotInterrupted",
        message=f"EC2 takes spot instance {instance} back in two minutes",
        offering_gone=True,
    )
