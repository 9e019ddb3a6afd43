"""EC2 instance rebalance recommendation: a spot instance is at a higher risk of interruption.

Sample: AWS's page "EC2 instance rebalance recommendations" (EC2 User Guide). It often comes ten to twenty minutes
before the interruption warning, sometimes together with it, sometimes without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.meta import EventReason
from shared.interruptions.notice import VALIDITY, Action, Detail, Evidence, Notice, required_text

if TYPE_CHECKING:
    from datetime import datetime

SOURCE = "aws.ec2"
DETAIL_TYPE = "EC2 Instance Rebalance Recommendation"


def parse(detail: Detail, time: datetime) -> Notice:  # noqa: ARG001 (every parser gets the time)
    """The NodePool's rebalance policy decides what happens."""
    instance_id = required_text(detail, "instance-id")
    return Notice(
        instance_ids=(instance_id,),
        action=Action.APPLY_REBALANCE_POLICY,
        reason=EventReason("SpotRebalanceRecommendation"),
        message=f"EC2 recommends replacing spot instance {instance_id}: its risk of interruption is elevated",
        evidence=Evidence.SPOT,
        valid_for=VALIDITY,
    )
