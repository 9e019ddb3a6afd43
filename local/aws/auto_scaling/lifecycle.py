"""The lifecycle of a group's instances: from Pending to InService or a warm pool, and to their termination.

Lifecycle hooks hold instances in the states that end with Wait. Source: user guide of EC2 Auto Scaling, "Amazon EC2
Auto Scaling instance lifecycle" and "Use lifecycle hooks with a warm pool".
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from local.aws import backends, ec2_instances
from local.aws.auto_scaling import events, lifecycle_hooks, warm_pools
from local.aws.auto_scaling.members import IN_SERVICE, PROCEED, TERMINATING, WAIT, WARMED
from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from local.aws.auto_scaling.activities import Activities, Activity
    from local.aws.auto_scaling.events import Events
    from local.aws.auto_scaling.lifecycle_hooks import LifecycleHooks
    from local.aws.auto_scaling.members import Group, Member


class Step(enum.Enum):
    """What became of an instance in one step."""

    NONE = enum.auto()
    MOVED = enum.auto()
    SERVES = enum.auto()
    ABANDONED = enum.auto()
    """A hook of its launch was abandoned, so the group terminates it."""
    GONE = enum.auto()


class Lifecycle(MutableStruct, kw_only=True):
    """Moves instances through the states of their lifecycle."""

    region: str
    now: Callable[[], datetime]
    activities: Activities
    events: Events
    hooks: LifecycleHooks

    def follow(self, group: Group, member: Member) -> Step:
        """Move the member on, as far as its instance and the group's hooks let it."""
        if member.is_terminating:
            return self._follow_termination(group, member)
        if not member.is_pending:
            return Step.NONE
        if member.waits:
            return self._follow_wait(group, member)
        if member.lifecycle_state.endswith(PROCEED):
            return self._follow_stop(group, member)
        return self._follow_boot(group, member)

    def terminate(self, group: Group, member: Member, activity: Activity, *, waits: bool) -> None:
        """Terminate the member's instance, after its termination hooks if it waits for them."""
        origin = events.WARM_POOL if member.is_warm else events.GROUP
        prefix = WARMED if member.is_warm else ""
        for launching in self.activities.of_instance(member.instance_id):
            if launching is not activity:
                launching.end(self.now(), failure=_launch_failure(member))
                self.events.activity_ended(group, launching, origin=member.origin, destination=origin)
        self.hooks.abandon(member.instance_id)
        member.origin, member.lifecycle_state = origin, f"{prefix}{TERMINATING}"
        if waits and self.hooks.begin(
            group, member, lifecycle_hooks.TERMINATING, origin=origin, destination=events.EC2
        ):
            member.lifecycle_state += WAIT
        else:
            backends.ec2(self.region).terminate_instances([member.instance_id])

    def _follow_boot(self, group: Group, member: Member) -> Step:
        if member.instance.state != ec2_instances.RUNNING:
            return Step.NONE
        destination = events.WARM_POOL if member.is_warm else events.GROUP
        if self.hooks.begin(group, member, lifecycle_hooks.LAUNCHING, origin=member.origin, destination=destination):
            member.lifecycle_state += WAIT
            return Step.MOVED
        return self._enter(group, member)

    def _follow_wait(self, group: Group, member: Member) -> Step:
        result = self.hooks.result(member.instance_id)
        if not result:
            return Step.NONE
        member.lifecycle_state = member.lifecycle_state.removesuffix(WAIT)
        return Step.ABANDONED if result == lifecycle_hooks.ABANDON else self._enter(group, member)

    def _enter(self, group: Group, member: Member) -> Step:
        """Put the instance in service, or into the warm pool in its state there."""
        if not member.is_warm:
            member.lifecycle_state = IN_SERVICE
            self._end_activities(group, member, destination=events.GROUP)
            return Step.SERVES
        if warm_pools.pool_state(group) == warm_pools.RUNNING:
            member.lifecycle_state = f"{WARMED}{warm_pools.RUNNING}"
            self._end_activities(group, member, destination=events.WARM_POOL)
        else:
            member.lifecycle_state += PROCEED
            member.instance.stop()
        return Step.MOVED

    def _follow_stop(self, group: Group, member: Member) -> Step:
        if member.instance.state != ec2_instances.STOPPED:
            return Step.NONE
        member.lifecycle_state = f"{WARMED}{warm_pools.STOPPED}"
        self._end_activities(group, member, destination=events.WARM_POOL)
        return Step.MOVED

    def _follow_termination(self, group: Group, member: Member) -> Step:
        if member.waits:
            if not self.hooks.result(member.instance_id):
                return Step.NONE
            member.lifecycle_state = member.lifecycle_state.removesuffix(WAIT) + PROCEED
            backends.ec2(self.region).terminate_instances([member.instance_id])
            return Step.MOVED
        if member.instance.state != ec2_instances.TERMINATED:
            return Step.NONE
        group.instance_states = [m for m in group.instance_states if m is not member]
        self._end_activities(group, member, destination=events.EC2)
        return Step.GONE

    def _end_activities(self, group: Group, member: Member, *, destination: str) -> None:
        for activity in self.activities.of_instance(member.instance_id):
            activity.end(self.now())
            self.events.activity_ended(group, activity, origin=member.origin, destination=destination)


def _launch_failure(member: Member) -> str:
    """Why a launch that is still in progress ends with the termination of its instance."""
    reason = getattr(member.instance.state_reason, "message", "") or "the instance was terminated"
    return (
        f"Instance became unhealthy while waiting for instance to be in InService state. Termination Reason: {reason}"
    )
