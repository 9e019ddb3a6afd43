"""An interruptible capacity reservation is reclaimed, and the instances in it with it."""

from __future__ import annotations

from shared.interruption.notice import Ask, Detail, Notice, text

SOURCE = "aws.ec2"
DETAIL_TYPE = "EC2 Capacity Reservation Instance Interruption Warning"


def parse(detail: Detail) -> Notice:
    """The instance must be drained, and the reservation's offering is gone."""
    instance = text(detail, "instance-id")
    return Notice(
        instance_ids=(instance,),
        ask=Ask.DRAIN,
        reason="CapacityReservationInterrupted",
        message=f"the capacity reservation of instance {instance} is reclaimed",
        offering_gone=True,
    )
