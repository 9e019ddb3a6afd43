"""When the hint about a node with planned pods is repeated. Pure: changes and times in, names of nodes out.

The lifecycle function nominates pods for a new node in several steps: it may wait for nodes in other domains before the
node takes pods, nominates pods again that kube-scheduler couldn't bind at once, and clears what is left at the end. No
change of the node tells it to continue, and a function may die between two steps. So the hint about the node is
repeated some seconds after each step, until nothing is left to do or the sweep of each minute is enough. The same holds
for a node that is drained to be rebooted in place.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from relay.watched_kinds import Change, Watched, WatchedNode, WatchedPod, updates
from shared.base.struct import MutableStruct
from shared.cluster import resources

if TYPE_CHECKING:
    from shared.cluster.resources import Resource

REPEATS = tuple(timedelta(seconds=s) for s in (1, 3, 6, 11, 20, 30, 40, 50, 60, 75, 90, 105, 120))
"""When a hint is repeated, after the node's last step."""
WINDOW = timedelta(seconds=11)
"""The time after which a node that takes pods is reconciled no more, unless pods are still nominated for it: the
nomination window of ten seconds, and the second in which it starts."""
RETRY_INTERVAL = timedelta(seconds=5)
"""The shortest time between two hints about pods that wait for nodes."""
_RETRY_AFTER = timedelta(seconds=3)
"""The time after which pods that a node didn't take need another: kube-scheduler has bound the others by then."""
_TOLERANCE = timedelta(seconds=0.5)
"""Hints that are due so soon are sent together."""


class RepeatedHints(NamedTuple):
    """The nodes whose hint is repeated, and whether pods that are still unschedulable may have waited for nothing."""

    nodes: tuple[str, ...]
    retry_pods: bool


class _Window(MutableStruct):
    """A node since its last step; ``repeats`` is how often its hint was repeated since."""

    since: datetime
    repeats: int = 0

    @property
    def due(self) -> datetime | None:
        return self.since + REPEATS[self.repeats] if self.repeats < len(REPEATS) else None


class NominationWindows:
    """The nodes that wait for nominations or have just got some. Not thread-safe."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}
        self._closed: set[str] = set()
        self._managed: dict[str, bool] = {}
        self._nominated: dict[str, str] = {}
        """The nominated node of pods without a node, by pod."""
        self._pods_by_node: Counter[str] = Counter()
        self._retry_wanted = False
        self._next_retry = datetime.min.replace(tzinfo=UTC)

    def observe(self, change: Change, now: datetime) -> None:
        """Update the state by a change of a pod or a node; other kinds are ignored."""
        for key, obj in updates(change, self._known_keys):
            if obj is None:
                self._deleted(change.resource, key)
            else:
                self._updated(obj, now)

    def due(self) -> datetime | None:
        """When the next hint is to be repeated."""
        moments = [window.due for window in self._windows.values() if window.due is not None]
        if self._retry_wanted:
            moments.append(self._next_retry)
        return min(moments, default=None)

    def take_due(self, now: datetime) -> RepeatedHints:
        """The hints to repeat now."""
        repeated = []
        for name, window in list(self._windows.items()):
            if window.due is None or window.due > now + _TOLERANCE:
                continue
            repeated.append(name)
            if name not in self._closed and window.due >= window.since + _RETRY_AFTER:
                self._retry_wanted = True
            window.repeats += 1
            self._forget_if_done(name, now)
        retry = self._retry_wanted and now >= self._next_retry
        if retry:
            self._retry_wanted = False
            self._next_retry = now + RETRY_INTERVAL
        return RepeatedHints(tuple(sorted(repeated)), retry)

    def _forget_if_done(self, name: str, now: datetime) -> None:
        window = self._windows[name]
        is_over = now + _TOLERANCE >= window.since + WINDOW
        if window.due is None or (is_over and name not in self._closed and not self._pods_by_node[name]):
            del self._windows[name]

    def _known_keys(self, resource: Resource) -> set[str]:
        if resource == resources.PODS:
            return set(self._nominated)
        return set(self._managed) if resource == resources.NODES else set()

    def _updated(self, obj: Watched, now: datetime) -> None:
        if isinstance(obj, WatchedNode):
            self._node_updated(obj, now)
        elif isinstance(obj, WatchedPod):
            self._nominate(obj.key, obj.nominated_node, now)

    def _deleted(self, resource: Resource, key: str) -> None:
        if resource == resources.NODES:
            self._managed.pop(key, None)
            self._closed.discard(key)
            if not self._pods_by_node[key]:
                self._windows.pop(key, None)
        elif resource == resources.PODS:
            self._nominate(key, "", None)

    def _node_updated(self, node: WatchedNode, now: datetime) -> None:
        name = node.key
        self._managed[name] = node.is_managed
        was_closed = name in self._closed
        if node.is_closed and not was_closed:
            self._closed.add(name)
        elif was_closed and not node.is_closed:
            self._closed.discard(name)
        if node.is_closed != was_closed:
            self._windows[name] = _Window(now)

    def _nominate(self, pod: str, node: str, now: datetime | None) -> None:
        """Record the node that the pod is nominated for, "" for none."""
        before = self._nominated.pop(pod, "")
        if before:
            self._pods_by_node[before] -= 1
            if not self._pods_by_node[before]:
                del self._pods_by_node[before]
        if node:
            self._nominated[pod] = node
            self._pods_by_node[node] += 1
            if node not in self._windows and now is not None and before != node and self._managed.get(node, True):
                self._windows[node] = _Window(now)
