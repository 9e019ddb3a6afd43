"""Auto Scaling groups over time: they launch and terminate instances until they have as many as desired.

moto's groups change at once, in their first subnet and always with success. Here a group reacts some seconds after a
change, balances its zones, takes from the capacity pools, backs off when they are empty, and replaces instances that
fail their health check. It uses its warm pool first, and its instances wait for lifecycle hooks.
"""

from __future__ import annotations

import copy
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from moto.core.exceptions import ServiceException

from local.aws import backends, ec2_instances
from local.aws.auto_scaling import balance, events, warm_pools
from local.aws.auto_scaling.activities import Activities, Activity
from local.aws.auto_scaling.events import Events
from local.aws.auto_scaling.launches import LaunchFailedError, launch, launch_details, template_of
from local.aws.auto_scaling.lifecycle import Lifecycle, Step
from local.aws.auto_scaling.lifecycle_hooks import LifecycleHooks
from local.aws.auto_scaling.members import PENDING, UNHEALTHY, WARMED, Group, Member
from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from local.aws.auto_scaling.launches import Fleet
    from local.aws.eventual_consistency import EventualConsistency

REACTION = timedelta(seconds=5)
"""From a change of the desired capacity to the launch or termination."""
HEALTH_CHECK = timedelta(seconds=60)
"""From the end of an instance to its failed health check; EC2's are done every minute."""
FIRST_RETRY, LAST_RETRY = timedelta(seconds=30), timedelta(minutes=15)
"""The back-off after failed launches, which doubles; AWS doesn't publish its own."""
_LOST = (ec2_instances.SHUTTING_DOWN, ec2_instances.TERMINATED, ec2_instances.STOPPING, ec2_instances.STOPPED)
_DIFFERENCE = "in response to a difference between desired and actual capacity"


class _Snapshot(MutableStruct):
    at: datetime
    desired: int
    members: list[Member]


class _State(MutableStruct):
    """What is remembered of a group.

    ``replacing`` has the instances that a rebalancing launched, until they serve, each with the one that it replaces;
    "" if that is chosen by zone.
    """

    act_at: datetime | None = None
    retry: timedelta = FIRST_RETRY
    checks: dict[str, datetime] = {}
    rebalance_at: datetime | None = None
    was_rebalanced: bool = False
    replacing: dict[str, str] = {}
    history: list[_Snapshot] = []


class AutoScalingGroups:
    """An actor that lets moto's Auto Scaling groups scale."""

    def __init__(
        self, *, region: str, now: Callable[[], datetime], fleet: Fleet, consistency: EventualConsistency
    ) -> None:
        self._region = region
        self._now = now
        self._fleet = fleet
        self._consistency = consistency
        self._states: dict[str, _State] = {}
        self.activities = Activities()
        self._events = Events(region, now)
        self.hooks = LifecycleHooks(now, self._events)
        self._lifecycle = Lifecycle(
            region=region, now=now, activities=self.activities, events=self._events, hooks=self.hooks
        )
        self.rebalance_after: timedelta | None = None
        """When a group with several zones is rebalanced, counted from its first instance in service; None: never."""

    def capacity_changed(self, group: Group) -> None:
        """Scale the group some seconds from now, without back-off."""
        state = self._state(group)
        state.act_at, state.retry = self._now() + REACTION, FIRST_RETRY
        self._record(group)

    def shown(self, group: Group) -> Group:
        """The group as DescribeAutoScalingGroups answers: as old as EC2's answers are, and without its warm pool."""
        history = self._state(group).history
        answer = copy.copy(group)
        if history and (lag := self._consistency.lag):
            snapshot = next((s for s in reversed(history) if s.at <= self._now() - lag), history[0])
            answer.desired_capacity, answer.instance_states = snapshot.desired, snapshot.members
        if group.warm_pool is not None:
            answer.warm_pool_size = sum(member.is_warm for member in answer.instance_states)
        answer.instance_states = [member for member in answer.instance_states if not member.is_warm]
        return answer

    def terminate(self, group: Group, member: Member, cause: str, *, waits: bool = True) -> Activity:
        """Terminate an instance of the group, after its hooks if it waits. The cause continues "At TIME"."""
        description = f"Terminating EC2 instance: {member.instance_id}"
        activity = self.activities.start(
            group.name,
            description,
            cause,
            self._now(),
            instance_id=member.instance_id,
            details=launch_details(member.instance),
        )
        self._lifecycle.terminate(group, member, activity, waits=waits)
        state = self._state(group)
        state.checks.pop(member.instance_id, None)
        state.act_at = min(filter(None, (state.act_at, self._now() + REACTION)))
        self._record(group)
        return activity

    def rebalance_recommended(self, instance_ids: Collection[str]) -> None:
        """Replace these spot instances of groups with Capacity Rebalancing: each ends once its replacement serves."""
        for group in self._groups():
            state = self._state(group)
            for member in list(group.instance_states):
                is_asked = member.instance_id in instance_ids and member.counts
                if is_asked and group.capacity_rebalance and member.instance_id not in state.replacing.values():
                    cause = f"an instance was launched as {member.instance_id} has a rebalance recommendation."
                    launched = self._launch(group, self._zones(group), cause)
                    if launched is not None:
                        state.replacing[launched.instance_id] = member.instance_id
                        self._record(group)

    def forget(self, group: Group) -> None:
        """Forget a deleted group."""
        self._states.pop(group.name, None)
        self.hooks.forget(group.name)

    def step(self, now: datetime) -> bool:
        """Follow the groups' instances, and scale the groups that are due."""
        sent = self._events.send()
        return _any(self._step(group, now) for group in self._groups()) or sent

    def due(self) -> datetime | None:
        """When the next group acts."""
        if self._events.waiting:
            return self._now()
        states = self._states.values()
        times = [at for s in states for at in (s.act_at, s.rebalance_at, *s.checks.values()) if at is not None]
        return min(filter(None, (*times, self.hooks.due())), default=None)

    def _groups(self) -> list[Group]:
        return list(backends.autoscaling(self._region).autoscaling_groups.values())

    def _step(self, group: Group, now: datetime) -> bool:
        state = self._state(group)
        changed = _any(self._follow(group, member, now) for member in list(group.instance_states))
        members = {member.instance_id for member in group.instance_states}
        state.checks = {id_: at for id_, at in state.checks.items() if id_ in members}
        changed |= _any(self._end_replacing(group, state, *pair) for pair in list(state.replacing.items()))
        if state.rebalance_at is not None and state.rebalance_at <= now:
            state.rebalance_at = None
            self._rebalance(group, state)
            changed = True
        if state.act_at is not None and state.act_at <= now:
            state.act_at = None
            self._scale(group, state, now)
            changed = True
        if changed:
            self._record(group)
        return changed

    def _follow(self, group: Group, member: Member, now: datetime) -> bool:
        """Let the member's lifecycle state follow its instance."""
        state = self._state(group)
        if not member.is_terminating and _is_lost(member):
            check_at = state.checks.setdefault(member.instance_id, now + HEALTH_CHECK)
            if check_at > now:
                return False
            member.health_status = UNHEALTHY
            cause = "an instance was taken out of service in response to an EC2 health check indicating it has been "
            self.terminate(group, member, f"{cause}terminated or stopped.")
            return True
        state.checks.pop(member.instance_id, None)  # it was started again
        step = self._lifecycle.follow(group, member)
        if step is Step.ABANDONED:
            self.terminate(group, member, "an instance was taken out of service as its lifecycle action was abandoned.")
        if step is Step.SERVES and self.rebalance_after is not None and not state.was_rebalanced:
            state.was_rebalanced, state.rebalance_at = True, now + self.rebalance_after
        return step is not Step.NONE

    def _scale(self, group: Group, state: _State, now: datetime) -> None:
        counted = [m for m in group.instance_states if m.counts]
        target = group.desired_capacity + len(state.replacing)
        for present in range(len(counted), target):
            cause = f"an instance was started {_DIFFERENCE}, increasing the capacity from {present} to {target}."
            zones = self._zones(group)
            if self._take_warm(group, zones, cause) is None and self._launch(group, zones, cause) is None:
                state.act_at, state.retry = now + state.retry, min(2 * state.retry, LAST_RETRY)
                return
            state.retry = FIRST_RETRY
        for present in range(len(counted), target, -1):
            self._scale_in(
                group, f"an instance was taken out of service {_DIFFERENCE}, shrinking the capacity from {present} to "
                f"{present - 1}."
            )  # fmt: skip
        if not self._size_warm_pool(group):
            state.act_at, state.retry = now + state.retry, min(2 * state.retry, LAST_RETRY)
            return
        if len(counted) > target:
            state.act_at = None  # protected instances stay, and nothing is due for them

    def _size_warm_pool(self, group: Group) -> bool:
        """Launch what the warm pool lacks, or terminate what it has too many; False: EC2 has no capacity."""
        lacking = warm_pools.lacking(group)
        for _ in range(lacking):
            cause = "an instance was launched for the warm pool."
            occupied = [m.availability_zone for m in warm_pools.members(group)]
            zones = balance.launch_zones(group.availability_zones, occupied)
            if self._launch(group, zones, cause, lifecycle_state=f"{WARMED}{PENDING}") is None:
                return False
        for member in warm_pools.members(group)[: max(0, -lacking)]:
            self.terminate(group, member, "an instance was taken out of the warm pool as it has too many.")
        return True

    def _take_warm(self, group: Group, zones: Sequence[str], cause: str) -> Member | None:
        """Move an instance of the warm pool into the group; None if there is none, or EC2 has no capacity for it."""
        now, member = self._now(), warm_pools.first_ready(group, zones)
        if member is None:
            return None
        description = f"Launching a new EC2 instance from warm pool: {member.instance_id}"
        details = launch_details(member.instance)
        activity = self.activities.start(
            group.name, description, cause, now, instance_id=member.instance_id, details=details
        )
        if member.instance.state == ec2_instances.STOPPED:
            try:
                backends.ec2(self._region).start_instances([member.instance_id])
            except ServiceException as error:
                self._fail(group, activity, f"{error.message} Launching EC2 instance failed.", origin=events.WARM_POOL)
                return None
        member.origin, member.lifecycle_state = events.WARM_POOL, PENDING
        return member

    def _fail(self, group: Group, activity: Activity, why: str, *, origin: str = events.EC2) -> None:
        activity.end(self._now(), failure=why)
        self._events.activity_ended(group, activity, origin=origin, destination=events.GROUP)

    def _scale_in(self, group: Group, cause: str, *, among: Collection[str] = (), kept: str = "") -> None:
        counted: Sequence[Member] = [m for m in group.instance_states if m.counts and m.instance_id != kept]
        chosen = balance.to_terminate(
            [m.candidate() for m in counted], current=template_of(group)[0], now=self._now(), among=among
        )
        for member in counted:
            if chosen is not None and member.instance_id == chosen.instance_id:
                self.terminate(group, member, cause)

    def _launch(
        self, group: Group, zones: Sequence[str], cause: str, *, lifecycle_state: str = PENDING
    ) -> Member | None:
        """Launch one instance in the first of the zones with capacity; each failure is an activity of its own."""
        now = self._now()
        for zone in zones:
            try:
                instance = launch(group, zone, self._fleet)
            except LaunchFailedError as error:
                failed = self.activities.start(group.name, "Launching a new EC2 instance.", cause, now)
                self._fail(group, failed, str(error))
                continue
            template_id, version = template_of(group)
            name = str(group.ec2_launch_template.name)
            member = Member(
                instance=instance,
                group=group.name,
                template={"LaunchTemplateId": template_id, "LaunchTemplateName": name, "Version": str(version)},
                lifecycle_state=lifecycle_state,
                protected_from_scale_in=bool(group.new_instances_protected_from_scale_in),
            )
            group.instance_states = [*group.instance_states, member]
            description = f"Launching a new EC2 instance: {instance.id}"
            details = launch_details(instance)
            self.activities.start(group.name, description, cause, now, instance_id=instance.id, details=details)
            return member
        return None

    def _rebalance(self, group: Group, state: _State) -> None:
        """Launch an instance in another zone; an old one is terminated once it serves."""
        occupied = [m.availability_zone for m in group.instance_states if m.counts]
        zone = balance.rebalanced_zone(group.availability_zones, occupied)
        if zone is None:
            return
        cause = f"instances were launched to balance instances in zones {zone} with other zones resulting in more than "
        cause += "desired number of instances in the group."
        launched = self._launch(group, [zone], cause)
        if launched is not None:
            state.replacing[launched.instance_id] = ""

    def _end_replacing(self, group: Group, state: _State, new: str, old: str) -> bool:
        """Terminate the old instance once the new one serves; False while there is anything to wait for."""
        members = {member.instance_id: member for member in group.instance_states if member.counts}
        launched = members.get(new)
        if launched is not None and launched.is_pending and (not old or old in members):
            return False
        del state.replacing[new]
        if launched is None or launched.is_pending:
            return True
        if old in members:
            cause = "an instance was taken out of service in response to an EC2 instance rebalance recommendation."
            self.terminate(group, members[old], cause)
        elif not old and len(members) > 1:
            occupied = [m.availability_zone for id_, m in members.items() if id_ != new]
            cause = "an instance was terminated to balance the group's zones, as a new one is in service."
            self._scale_in(group, cause, among=[balance.fullest_zone(occupied)], kept=new)
        return True

    def _zones(self, group: Group) -> list[str]:
        return balance.launch_zones(
            group.availability_zones, [m.availability_zone for m in group.instance_states if m.counts]
        )

    def _record(self, group: Group) -> None:
        members = [copy.copy(member) for member in group.instance_states]
        self._state(group).history.append(_Snapshot(self._now(), group.desired_capacity, members))

    def _state(self, group: Group) -> _State:
        return self._states.setdefault(group.name, _State())


def _any(steps: Iterable[bool]) -> bool:
    """Whether a step did anything; all are done."""
    return bool(sum(steps))


def _is_lost(member: Member) -> bool:
    return warm_pools.is_lost(member) if member.is_warm else member.instance.state in _LOST
