"""Auto Scaling groups over time: they launch and terminate instances until they have as many as desired.

moto's groups change at once, in their first subnet and always with success. Here a group reacts some seconds after a
change, balances its zones, takes from the capacity pools, backs off when they are empty, and replaces instances that
fail their health check. Its instances have no lifecycle hooks.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from local.aws import backends, ec2_instances
from local.aws.auto_scaling import balance
from local.aws.auto_scaling.activities import Activities, Activity
from local.aws.auto_scaling.launches import LaunchFailedError, launch, template_of
from local.aws.auto_scaling.members import IN_SERVICE, PENDING, TERMINATING, UNHEALTHY, Member

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from local.aws.auto_scaling.launches import Fleet
    from local.aws.eventual_consistency import EventualConsistency

Group = Any
"""moto's ``FakeAutoScalingGroup``."""
REACTION = timedelta(seconds=5)
"""From a change of the desired capacity to the launch or termination."""
HEALTH_CHECK = timedelta(seconds=60)
"""From the end of an instance to its failed health check; EC2's are done every minute."""
FIRST_RETRY, LAST_RETRY = timedelta(seconds=30), timedelta(minutes=15)
"""The back-off after failed launches, which doubles; AWS doesn't publish its own."""
_LOST = (ec2_instances.SHUTTING_DOWN, ec2_instances.TERMINATED, ec2_instances.STOPPING, ec2_instances.STOPPED)
_DIFFERENCE = "in response to a difference between desired and actual capacity"


@dataclass
class _Snapshot:
    at: datetime
    desired: int
    members: list[Member]


@dataclass
class _State:
    """What is remembered of a group. ``rebalancing`` is the instance that a rebalancing launched, until it serves."""

    act_at: datetime | None = None
    retry: timedelta = FIRST_RETRY
    checks: dict[str, datetime] = field(default_factory=dict)
    rebalance_at: datetime | None = None
    was_rebalanced: bool = False
    rebalancing: str = ""
    history: list[_Snapshot] = field(default_factory=list)


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
        self.rebalance_after: timedelta | None = None
        """When a group with several zones is rebalanced, counted from its first instance in service; None: never."""

    def capacity_changed(self, group: Group) -> None:
        """Scale the group some seconds from now, without back-off."""
        state = self._state(group)
        state.act_at, state.retry = self._now() + REACTION, FIRST_RETRY
        self._record(group)

    def shown(self, group: Group) -> Group:
        """The group as DescribeAutoScalingGroups answers: as old as EC2's answers are."""
        lag = self._consistency.lag
        history = self._state(group).history
        if not lag or not history:
            return group
        snapshot = next((s for s in reversed(history) if s.at <= self._now() - lag), history[0])
        answer = copy.copy(group)
        answer.desired_capacity, answer.instance_states = snapshot.desired, snapshot.members
        return answer

    def terminate(self, group: Group, member: Member, cause: str) -> Activity:
        """Terminate an instance of the group. The cause continues "At TIME"."""
        now = self._now()
        for launching in self.activities.of_instance(member.instance_id):
            launching.end(now, failure=_launch_failure(member))
        description = f"Terminating EC2 instance: {member.instance_id}"
        activity = self.activities.start(group.name, description, cause, now, instance_id=member.instance_id)
        member.lifecycle_state = TERMINATING
        backends.ec2(self._region).terminate_instances([member.instance_id])
        state = self._state(group)
        state.checks.pop(member.instance_id, None)
        state.act_at = min(filter(None, (state.act_at, now + REACTION)))
        self._record(group)
        return activity

    def forget(self, group: Group) -> None:
        """Forget a deleted group."""
        self._states.pop(group.name, None)

    def step(self, now: datetime) -> bool:
        """Follow the groups' instances, and scale the groups that are due."""
        groups = list(backends.autoscaling(self._region).autoscaling_groups.values())
        return _any(self._step(group, now) for group in groups)

    def due(self) -> datetime | None:
        """When the next group acts."""
        states = self._states.values()
        times = [at for s in states for at in (s.act_at, s.rebalance_at, *s.checks.values()) if at is not None]
        return min(times, default=None)

    def _step(self, group: Group, now: datetime) -> bool:
        state = self._state(group)
        changed = _any(self._follow(group, member, now) for member in list(group.instance_states))
        members = {member.instance_id for member in group.instance_states}
        state.checks = {id_: at for id_, at in state.checks.items() if id_ in members}
        changed |= self._end_rebalancing(group, state)
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
        state, instance_state = self._state(group), member.instance.state
        if member.lifecycle_state == TERMINATING:
            if instance_state != ec2_instances.TERMINATED:
                return False
            group.instance_states = [m for m in group.instance_states if m is not member]
            self._end_activities(member, now)
            return True
        if instance_state in _LOST:
            check_at = state.checks.setdefault(member.instance_id, now + HEALTH_CHECK)
            if check_at > now:
                return False
            member.health_status = UNHEALTHY
            cause = "an instance was taken out of service in response to an EC2 health check indicating it has been "
            self.terminate(group, member, f"{cause}terminated or stopped.")
            return True
        state.checks.pop(member.instance_id, None)  # it was started again
        if member.lifecycle_state != PENDING or instance_state != ec2_instances.RUNNING:
            return False
        member.lifecycle_state = IN_SERVICE
        self._end_activities(member, now)
        if self.rebalance_after is not None and not state.was_rebalanced:
            state.was_rebalanced, state.rebalance_at = True, now + self.rebalance_after
        return True

    def _end_activities(self, member: Member, now: datetime) -> None:
        for activity in self.activities.of_instance(member.instance_id):
            activity.end(now)

    def _scale(self, group: Group, state: _State, now: datetime) -> None:
        counted = [m for m in group.instance_states if m.counts]
        target = group.desired_capacity + bool(state.rebalancing)
        for present in range(len(counted), target):
            cause = f"an instance was started {_DIFFERENCE}, increasing the capacity from {present} to {target}."
            if self._launch(group, self._zones(group), cause) is None:
                state.act_at, state.retry = now + state.retry, min(2 * state.retry, LAST_RETRY)
                return
            state.retry = FIRST_RETRY
        for present in range(len(counted), target, -1):
            self._scale_in(
                group, f"an instance was taken out of service {_DIFFERENCE}, shrinking the capacity from {present} to "
                f"{present - 1}."
            )  # fmt: skip
        if len(counted) > target:
            state.act_at = None  # protected instances stay, and nothing is due for them

    def _scale_in(self, group: Group, cause: str, *, among: Collection[str] = (), kept: str = "") -> None:
        counted: Sequence[Member] = [m for m in group.instance_states if m.counts and m.instance_id != kept]
        chosen = balance.to_terminate(
            [m.candidate() for m in counted], current=template_of(group)[0], now=self._now(), among=among
        )
        for member in counted:
            if chosen is not None and member.instance_id == chosen.instance_id:
                self.terminate(group, member, cause)

    def _launch(self, group: Group, zones: Sequence[str], cause: str) -> Member | None:
        """Launch one instance in the first of the zones with capacity; each failure is an activity of its own."""
        now = self._now()
        for zone in zones:
            try:
                instance = launch(group, zone, self._fleet)
            except LaunchFailedError as error:
                failed = self.activities.start(group.name, "Launching a new EC2 instance.", cause, now)
                failed.end(now, failure=str(error))
                continue
            template_id, version = template_of(group)
            name = str(group.ec2_launch_template.name)
            member = Member(
                instance=instance,
                group=group.name,
                template={"LaunchTemplateId": template_id, "LaunchTemplateName": name, "Version": str(version)},
                protected_from_scale_in=bool(group.new_instances_protected_from_scale_in),
            )
            group.instance_states = [*group.instance_states, member]
            description = f"Launching a new EC2 instance: {instance.id}"
            self.activities.start(group.name, description, cause, now, instance_id=instance.id)
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
        state.rebalancing = launched.instance_id if launched is not None else ""

    def _end_rebalancing(self, group: Group, state: _State) -> bool:
        if not state.rebalancing:
            return False
        launched = next((m for m in group.instance_states if m.instance_id == state.rebalancing), None)
        if launched is not None and launched.lifecycle_state == PENDING:
            return False
        kept, state.rebalancing = state.rebalancing, ""
        if launched is not None and launched.lifecycle_state == IN_SERVICE:
            occupied = [m.availability_zone for m in group.instance_states if m.counts and m is not launched]
            among = [balance.fullest_zone(occupied)] if occupied else []
            cause = "an instance was terminated to balance the group's zones, as a new one is in service."
            self._scale_in(group, cause, among=among, kept=kept)
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


def _launch_failure(member: Member) -> str:
    """Why a launch that is still in progress ends with the termination of its instance."""
    reason = getattr(member.instance.state_reason, "message", "") or "the instance was terminated"
    return (
        f"Instance became unhealthy while waiting for instance to be in InService state. Termination Reason: {reason}"
    )
