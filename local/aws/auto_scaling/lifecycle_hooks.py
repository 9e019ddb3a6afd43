"""Lifecycle hooks: instances wait in Pending:Wait or Terminating:Wait until their lifecycle actions are completed.

Source: user guide of EC2 Auto Scaling, "Lifecycle hooks". A launch that is abandoned ends with the instance's
termination; a termination continues either way, and an abandoned action ends the other hooks' actions with it.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from shared.base.struct import MutableStruct, Struct, with_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from datetime import datetime

    from local.aws.auto_scaling.events import Events
    from local.aws.auto_scaling.members import Member

LAUNCHING, TERMINATING = "autoscaling:EC2_INSTANCE_LAUNCHING", "autoscaling:EC2_INSTANCE_TERMINATING"
CONTINUE, ABANDON = "CONTINUE", "ABANDON"
_EVENTS = {LAUNCHING: "EC2 Instance-launch Lifecycle Action", TERMINATING: "EC2 Instance-terminate Lifecycle Action"}
_MAX_TIMEOUT, _TIMEOUTS = 172_800, 100
"""An instance waits for 48 hours or 100 heartbeat time-outs, whichever is shorter."""
_IDS = uuid.UUID("1f6f0b5c-5a2b-4a57-9a3a-0cc0b1a7a0c2")
"""The namespace of the tokens: the same in each run."""


class Hook(Struct, kw_only=True):
    """A lifecycle hook. ``heartbeat_timeout`` in seconds."""

    group: str
    name: str
    transition: str
    heartbeat_timeout: int = 3600
    default_result: str = ABANDON
    metadata: str = ""
    target: str = ""
    role: str = ""

    @property
    def global_timeout(self) -> int:
        """How long an instance waits at most, in seconds."""
        return min(_MAX_TIMEOUT, _TIMEOUTS * self.heartbeat_timeout)

    def answer(self) -> dict[str, Any]:
        """As in DescribeLifecycleHooks' answer."""
        optional = {
            "NotificationTargetARN": self.target,
            "RoleARN": self.role,
            "NotificationMetadata": self.metadata,
        }
        return {
            "LifecycleHookName": self.name,
            "AutoScalingGroupName": self.group,
            "LifecycleTransition": self.transition,
            "HeartbeatTimeout": self.heartbeat_timeout,
            "GlobalTimeout": self.global_timeout,
            "DefaultResult": self.default_result,
            **{key: value for key, value in optional.items() if value},
        }


class Action(MutableStruct, kw_only=True):
    """A lifecycle action: one hook's wait for one instance."""

    hook: Hook
    instance_id: str
    token: str
    started_at: datetime
    expires_at: datetime
    result: str = ""

    def heartbeat(self, now: datetime) -> None:
        """Restart the time-out, within the global one."""
        last = self.started_at + timedelta(seconds=self.hook.global_timeout)
        self.expires_at = min(now + timedelta(seconds=self.hook.heartbeat_timeout), last)


class LifecycleHooks(MutableStruct):
    """The hooks of all groups, and the actions that instances wait for."""

    now: Callable[[], datetime]
    events: Events
    _hooks: dict[tuple[str, str], Hook] = {}
    _actions: dict[str, list[Action]] = {}
    _tokens: int = 0

    def put(self, hook: Hook) -> None:
        """Add a hook, or change it for later actions."""
        self._hooks[hook.group, hook.name] = hook

    def find(self, group: str, name: str) -> Hook | None:
        """The hook of that name."""
        return self._hooks.get((group, name))

    def of_group(self, group: str, names: Collection[str] = ()) -> list[Hook]:
        """The group's hooks by name; only those with these names, if any are given."""
        return [
            hook for (of, name), hook in sorted(self._hooks.items()) if of == group and (not names or name in names)
        ]

    def remove(self, group: str, name: str) -> None:
        """Remove a hook. Its actions are completed: ABANDON for launching instances, CONTINUE for terminating ones."""
        if (hook := self._hooks.pop((group, name), None)) is None:
            return
        for action in self.waiting():
            if action.hook.group == group and action.hook.name == name:
                action.result = ABANDON if hook.transition == LAUNCHING else CONTINUE

    def forget(self, group: str) -> None:
        """Forget a deleted group's hooks and actions."""
        self._hooks = {key: hook for key, hook in self._hooks.items() if key[0] != group}
        self._actions = {id_: actions for id_, actions in self._actions.items() if actions[0].hook.group != group}

    def begin(self, group: Any, member: Member, transition: str, *, origin: str, destination: str) -> bool:
        """Start the group's actions for an instance, and send their events; False: there is no hook to wait for."""
        hooks = [hook for hook in self.of_group(group.name) if hook.transition == transition]
        self._actions.pop(member.instance_id, None)
        if hooks:
            self._actions[member.instance_id] = [self._start(hook, member.instance_id) for hook in hooks]
        for action in self._actions.get(member.instance_id, ()):
            detail = {
                "LifecycleActionToken": action.token,
                "AutoScalingGroupName": str(group.name),
                "LifecycleHookName": action.hook.name,
                "EC2InstanceId": member.instance_id,
                "LifecycleTransition": transition,
                **({"NotificationMetadata": action.hook.metadata} if action.hook.metadata else {}),
                "Origin": origin,
                "Destination": destination,
            }
            self.events.add(_EVENTS[transition], [str(group.arn)], detail)
        return bool(hooks)

    def result(self, instance_id: str) -> str:
        """CONTINUE or ABANDON once the instance needs to wait no longer; "" while it waits."""
        actions = self._actions.get(instance_id, [])
        for action in actions:
            if not action.result and action.expires_at <= self.now():
                action.result = action.hook.default_result
        if any(action.result == ABANDON for action in actions):
            return self._end(instance_id, ABANDON)
        return "" if any(not action.result for action in actions) else self._end(instance_id, CONTINUE)

    def abandon(self, instance_id: str) -> None:
        """End the instance's actions: it leaves its state otherwise."""
        self._actions.pop(instance_id, None)

    def active(self, group: str, hook: str, *, token: str, instance_id: str) -> Action | None:
        """The action that waits, by its token or instance."""
        for action in self.waiting():
            same = action.hook.group == group and action.hook.name == hook
            if same and (action.token == token if token else action.instance_id == instance_id):
                return action
        return None

    def waiting(self) -> Iterator[Action]:
        """The actions that no one has completed."""
        return (a for actions in self._actions.values() for a in actions if not a.result)

    def due(self) -> datetime | None:
        """When the next instance needs to wait no longer, or at least the next of its actions ends."""
        return min((self._due(actions) for actions in self._actions.values()), default=None)

    def _due(self, actions: Iterable[Action]) -> datetime:
        waiting = [action.expires_at for action in actions if not action.result]
        abandoned = any(action.result == ABANDON for action in actions)
        return self.now() if abandoned or not waiting else min(waiting)

    def _start(self, hook: Hook, instance_id: str) -> Action:
        now, self._tokens = self.now(), self._tokens + 1
        token = str(uuid.uuid5(_IDS, str(self._tokens)))
        action = Action(hook=hook, instance_id=instance_id, token=token, started_at=now, expires_at=now)
        action.heartbeat(now)
        return action

    def _end(self, instance_id: str, result: str) -> str:
        self._actions.pop(instance_id, None)
        return result


def updated(hook: Hook | None, **given: Any) -> Hook:
    """The hook with these fields; those that are None or "" stay as they are."""
    values = {name: value for name, value in given.items() if value not in (None, "")}
    return Hook(**values) if hook is None else with_fields(hook, **values)
