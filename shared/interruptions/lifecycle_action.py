"""Terminate lifecycle action: an Auto Scaling group waits with an instance's termination for one of its hooks.

Sample: AWS's page "Amazon EC2 Auto Scaling event reference" (EC2 Auto Scaling User Guide). Scaling in, rebalancing of
zones, failed health checks and instance refreshes all end an instance in this way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.meta import EventReason
from shared.interruptions.notice import (
    VALIDITY,
    Action,
    Detail,
    Evidence,
    LifecycleAction,
    Notice,
    required_text,
)

if TYPE_CHECKING:
    from datetime import datetime

SOURCE = "aws.autoscaling"
DETAIL_TYPE = "EC2 Instance-terminate Lifecycle Action"


def parse(detail: Detail, time: datetime) -> Notice:  # noqa: ARG001 (every parser gets the time)
    """The node is drained, and the action is completed then."""
    instance_id = required_text(detail, "EC2InstanceId")
    action = LifecycleAction(
        group=required_text(detail, "AutoScalingGroupName"),
        hook=required_text(detail, "LifecycleHookName"),
        token=required_text(detail, "LifecycleActionToken"),
    )
    return Notice(
        instance_ids=(instance_id,),
        action=Action.CORDON_AND_DRAIN,
        reason=EventReason("LifecycleAction"),
        message=f"Auto Scaling group {action.group} terminates instance {instance_id}; its hook {action.hook} waits",
        evidence=Evidence.NONE,
        valid_for=VALIDITY,
        lifecycle_action=action,
    )
