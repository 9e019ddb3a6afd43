"""Warm pools: instances next to a group that have booted once, stopped or running, and that a scale-out takes first.

Source: user guide of EC2 Auto Scaling, "Warm pools"; the size is that of PutWarmPool's API reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.aws import ec2_instances
from local.aws.auto_scaling.members import WARMED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local.aws.auto_scaling.members import Group, Member

STOPPED, RUNNING = "Stopped", "Running"
_GONE = (ec2_instances.SHUTTING_DOWN, ec2_instances.TERMINATED)


def pool_state(group: Group) -> str:
    """The state of the instances in the group's warm pool."""
    return str(group.warm_pool.pool_state) if group.warm_pool is not None else STOPPED


def members(group: Group) -> list[Member]:
    """The instances in the warm pool, without those that are being terminated."""
    return [member for member in group.instance_states if member.is_warm and not member.is_terminating]


def lacking(group: Group) -> int:
    """How many instances the warm pool lacks; negative if it has too many."""
    pool = group.warm_pool
    if pool is None:
        return -len(members(group))
    prepared = pool.max_group_prepared_capacity
    prepared = int(group.max_size if prepared in (None, -1) else prepared)
    return max(int(pool.min_size), prepared - int(group.desired_capacity)) - len(members(group))


def first_ready(group: Group, zones: Sequence[str]) -> Member | None:
    """The instance that a scale-out takes: one that has been warmed, in the first of the zones that has any."""
    states = (f"{WARMED}{STOPPED}", f"{WARMED}{RUNNING}")
    ready = [member for member in members(group) if member.lifecycle_state in states and not is_lost(member)]
    return min(ready, key=lambda member: (zones.index(member.availability_zone), member.instance_id), default=None)


def is_lost(member: Member) -> bool:
    """Whether EC2 has terminated the instance: one that is stopped is as the warm pool wants it."""
    return member.instance.state in _GONE
