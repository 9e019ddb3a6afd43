"""EC2 sees a higher risk that a spot instance will be taken back.

Sample: AWS's page "EC2 instance rebalance recommendations" (EC2 User Guide). Often ten to twenty minutes ahead of the
warning, sometimes together with it, sometimes without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from functions.interruption.messages.notice import LONG_USE, Ask, Basis, Detail, Notice, text
from shared.api.meta import EventReason

if TYPE_CHECKING:
    from datetime import datetime

SOURCE = "aws.ec2"
DETAIL_TYPE = "EC2 Instance Rebalance Recommendation"


def parse(detail: Detail, time: datetime) -> Notice:  # noqa: ARG001 (every parser gets the time)
    """What is done is the pool's choice."""
    instance = text(detail, "instance-id")
    return Notice(
        instance_ids=(instance,),
        ask=Ask.RISK,
        reason=EventReason("SpotRebalanceRecommendation"),
        message=f"EC2 recommends to replace spot instance {instance}: it is at a higher risk of interruption",
        basis=Basis.SPOT,
        use=LONG_USE,
    )
