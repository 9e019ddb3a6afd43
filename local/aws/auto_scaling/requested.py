"""The groups and instances that requests name, and Auto Scaling's errors where there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from local.aws.auto_scaling.members import Group, Member

VALIDATION = "ValidationError"


def group_named(backend: Any, name: str) -> Group:
    """The group of that name.

    Raises:
        AutoscalingClientError: there is none.
    """
    if name not in backend.autoscaling_groups:
        raise refused(VALIDATION, "AutoScalingGroup name not found - null")
    return backend.autoscaling_groups[name]


def member_of(backend: Any, instance_id: str) -> tuple[Group, Member]:
    """The instance and its group.

    Raises:
        AutoscalingClientError: no group has it.
    """
    for group in backend.autoscaling_groups.values():
        for member in group.instance_states:
            if member.instance_id == instance_id:
                return group, member
    text = f"Instance Id not found - No managed instance found for instance ID: {instance_id}"
    raise refused(VALIDATION, text)


def refused(code: str, message: str) -> Exception:
    """Auto Scaling's error."""
    from moto.autoscaling.exceptions import AutoscalingClientError

    error: Exception = AutoscalingClientError(code, message)
    return error
