"""An interruptible capacity reservation is reclaimed, or a capacity block ends, and the instances in it go with it.

Samples: AWS's pages "Monitor interruptible Capacity Reservations" and "Monitor Capacity Blocks using EventBridge" (EC2
User Guide). Both say when the instance is terminated.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from shared.interruption.notice import Ask, Detail, MalformedEventError, Notice, text

SOURCE = "aws.ec2"
DETAIL_TYPE = "EC2 Capacity Reservation Instance Interruption Warning"
NOTICE = timedelta(minutes=2)


def parse(detail: Detail, time: datetime) -> Notice:
    """The instance goes when the event says, two minutes from it if it doesn't, and the offering is gone."""
    instance = text(detail, "instance-id")
    return Notice(
        instance_ids=(instance,),
        ask=Ask.GIVE_UP,
        reason="CapacityReservationInterrupted",
        message=f"the capacity reservation of instance {instance} is reclaimed",
        by=_end(detail, time),
        offering_gone=True,
    )


def _end(detail: Detail, time: datetime) -> datetime:
    said = detail.get("instance-termination-time")
    if said is None:
        return time + NOTICE
    try:
        end = datetime.fromisoformat(str(said))
    except ValueError as error:
        raise MalformedEventError(f"detail.instance-termination-time is {said!r}, where a time is required") from error
    if end.tzinfo is None:
        raise MalformedEventError(f"detail.instance-termination-time is {said!r}, without a time zone")
    return end
