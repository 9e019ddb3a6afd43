"""EC2 sees a higher risk that a spot instance will be taken back."""

from __future__ import annotations

from shared.interruption.notice import Ask, Detail, Notice, text

SOURCE = "aws.ec2"
DETAIL_TYPE = "EC2 Instance Rebalance Recommendation"


def parse(detail: Detail) -> Notice:
    """Only told, as Karpenter does."""
    instance = text(detail, "instance-id")
    return Notice(
        instance_ids=(instance,),
        ask=Ask.TELL,
        reason="SpotRebalanceRecommendation",
        message=f"EC2 recommends to replace spot instance {instance}: it is at a higher risk of interruption",
    )
