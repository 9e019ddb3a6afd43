"""Where pods of one shape can go now, kept up to date node by node, and which of those places is best."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from local.kubernetes.scheduler import node_plugins
from local.kubernetes.scheduler.score_plugins import Liking, room
from local.kubernetes.scheduler.topology_plugins import guards_against, own_rules

if TYPE_CHECKING:
    from local.kubernetes.scheduler.cache import Board
    from local.kubernetes.scheduler.node_info import Place
    from local.kubernetes.scheduler.pod_signature import Shape
    from local.kubernetes.scheduler.topology_plugins import Rule
    from local.kubernetes.scheduler.volume_plugins import Storage


class Search:
    """One shape's view of the board. Ask ``best`` as often as you like: only nodes that changed are looked at again."""

    def __init__(self, shape: Shape, board: Board, storage: Storage) -> None:
        self.shape = shape
        self._board = board
        self._storage = storage
        self._open: dict[str, Place] = {}
        self._room: dict[str, int] = {}
        self._closed: dict[str, tuple[str, ...]] = {}
        self._rules = own_rules(shape, board)
        self._liking = Liking(shape, board)
        self._guards_seen = 0
        self._guards: list[Rule] = []
        self._seen = 0
        self._storage_seen: object = None
        self._failed_at: object = None
        self._message = ""

    @property
    def hopeless(self) -> bool:
        """Whether nothing has changed since no place was found."""
        return self._failed_at == self._now()

    def _now(self) -> tuple[int, object]:
        return self._board.revision, self._storage.state_of(self.shape)

    def _fail(self) -> None:
        self._failed_at = self._now()
        self._message = ""

    def best(self) -> Place | None:
        """The best place, None if there is none."""
        if self.hopeless:
            return None
        if self._storage.refusal(self.shape):
            self._fail()
            return None
        self._look()
        for rule in (*self._rules, *self._guards):
            rule.judge()
        feasible = [place for place in self._open.values() if not self._refusal(place)]
        if not feasible:
            self._fail()
            return None
        liked = self._liking.of(feasible)
        return max(feasible, key=lambda p: (self._room[p.name] + liked.get(p.name, 0), -p.order))

    def message(self) -> str:
        """Why there is no place, as kube-scheduler says it; for use right after ``best`` found none."""
        if not self._message:
            self._message = self._explained()
        return self._message

    def _explained(self) -> str:
        total = len(self._board.places)
        if not total:
            return "no nodes available to schedule pods"
        everywhere = self._storage.refusal(self.shape)
        if everywhere:
            hint = f"{total} Preemption is not helpful for scheduling."
            return f"0/{total} nodes are available: {everywhere}. preemption: 0/{total} nodes are available: {hint}"
        reasons: Counter[str] = Counter()
        final = 0
        for name, place in self._board.places.items():
            closed = self._closed.get(name) or (self._refusal(place) if name in self._open else node_plugins.AFFINITY,)
            reasons.update(closed)
            final += any(node_plugins.is_final(reason) for reason in closed)
        why = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
        hints: list[str] = []
        if total - final:
            hints.append(f"{total - final} No preemption victims found for incoming pod")
        if final:
            hints.append(f"{final} Preemption is not helpful for scheduling")
        return f"0/{total} nodes are available: {why}. preemption: 0/{total} nodes are available: {', '.join(hints)}."

    def _refusal(self, place: Place) -> str:
        for rule in self._rules:
            if reason := rule.refusal(place):
                return reason
        for guard in self._guards:
            if reason := guard.refusal(place):
                return reason
        return ""

    def _look(self) -> None:
        """Judge every node that changed since the last look."""
        if self._storage_seen != (state := self._storage.state_of(self.shape)):
            self._storage_seen = state
            self._seen = 0
        guards = self._board.guards
        for guard in guards_against(self.shape, guards[self._guards_seen :]):
            for name, place in self._board.places.items():
                guard.refresh(name, place)
            self._guards.append(guard)
        self._guards_seen = len(guards)
        only = self.shape.only
        if only is not None and not self._rules and not self._guards:
            changed = [(name, self._board.places.get(name)) for name in sorted(only)]
        else:
            changed = list(self._board.changed_since(self._seen))
        self._seen = self._board.revision
        for name, new in changed:
            for rule in (*self._rules, *self._guards):
                rule.refresh(name, new)
            self._liking.refresh(name, new)
            self._judge(name, new)

    def _judge(self, name: str, place: Place | None) -> None:
        for kept in (self._open, self._room, self._closed):
            kept.pop(name, None)
        if place is None:
            return
        if self.shape.only is not None and name not in self.shape.only:
            self._closed[name] = (node_plugins.AFFINITY,)
            return
        refusals = node_plugins.refusals(self.shape, place)
        if not refusals and self.shape.claims:
            refusals = self._storage.refusals(self.shape, place)
        if refusals:
            self._closed[name] = refusals
        else:
            self._open[name] = place
            self._room[name] = room(self.shape, place)
