"""EKS's own lifecycle hooks of managed node groups, which EKS completes itself: after it has drained the node.

Names and time-outs are those that managed node groups have. When a node is terminated by a rebalancing or a smaller
desired size, EKS evicts its pods for up to 15 minutes; it drains interrupted spot nodes, too (EKS User Guide, "Simplify
node lifecycle with managed node groups").
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from local.aws.auto_scaling.lifecycle_hooks import CONTINUE, LAUNCHING, TERMINATING, Hook
from local.aws.ec2_instances import SPOT_NOTICE
from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from local.aws.auto_scaling.lifecycle_hooks import Action, LifecycleHooks

_LAUNCH, _TERMINATE = "Launch-LC-Hook", "Terminate-LC-Hook"
_TIMEOUT = 1800
_REACTION = timedelta(seconds=2)
_RETRY = timedelta(seconds=5)
DRAIN_TIMEOUT = timedelta(minutes=15)


def hooks_of(group: str) -> list[Hook]:
    """EKS's hooks for the group of a managed node group."""
    return [
        Hook(group=group, name=name, transition=transition, heartbeat_timeout=_TIMEOUT, default_result=CONTINUE)
        for name, transition in ((_LAUNCH, LAUNCHING), (_TERMINATE, TERMINATING))
    ]


class ManagedHooks(MutableStruct):
    """An actor that completes the actions of EKS's hooks.

    ``drain`` evicts the pods of an instance's node, and answers whether it has none left; without a cluster there is
    nothing to drain.
    """

    hooks: LifecycleHooks
    now: Callable[[], datetime]
    drain: Callable[[str], bool] = lambda _instance_id: True
    _next: dict[str, datetime] = {}
    _interrupted: dict[str, datetime] = {}

    def interrupted(self, instance_id: str) -> None:
        """Drain the node of this spot instance until it is empty or its time is over."""
        self._interrupted[instance_id] = self.now() + SPOT_NOTICE
        self._next[instance_id] = self.now() + _REACTION

    def step(self, now: datetime) -> bool:
        """Drain the nodes that are due, and complete the actions of those that are empty."""
        actions = {action.token: action for action in self._actions()}
        waiting = {token: action.started_at + _REACTION for token, action in actions.items()} | self._interrupted
        self._next = {key: self._next.get(key, at) for key, at in waiting.items()}
        due = [key for key, at in self._next.items() if at <= now]
        for key in due:
            self._next[key] = now + _RETRY
            if key in actions:
                self._follow(actions[key], now)
            elif self.drain(key) or now >= self._interrupted[key]:
                del self._interrupted[key]
        return bool(due)

    def due(self) -> datetime | None:
        """When the next node is drained."""
        waiting = [self._next.get(a.token, a.started_at + _REACTION) for a in self._actions()]
        return min((*waiting, *(self._next[id_] for id_ in self._interrupted)), default=None)

    def _follow(self, action: Action, now: datetime) -> None:
        launches = action.hook.transition == LAUNCHING
        if launches or self.drain(action.instance_id) or now - action.started_at >= DRAIN_TIMEOUT:
            action.result = CONTINUE

    def _actions(self) -> list[Action]:
        return [action for action in self.hooks.waiting() if action.hook.name in (_LAUNCH, _TERMINATE)]
