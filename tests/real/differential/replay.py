"""Repeats a recording of a real API server on the embedded one, and collects where their answers differ.

The embedded server's objects are those of the recording at each moment, versions and uids included. A request is
repeated on them, its answer is compared, and its effects are undone: the state that follows is the recorded one. So a
difference shows in the request that causes it, and not in later ones. Where several states may have been the request's,
it differs only if it differs at each.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from local.kubernetes import kinds
from local.kubernetes.apiserver.api import Api
from local.kubernetes.apiserver.http import Request
from local.kubernetes.apiserver.rbac import Rbac
from local.kubernetes.errors import FORBIDDEN
from tests.real.differential.comparison import Difference, answer_differences, effect_differences, watch_differences
from tests.real.differential.known_differences import unexplained
from tests.real.differential.replayed_store import ReplayedStore
from tests.real.differential.timeline import READS, Timeline

if TYPE_CHECKING:
    from local.kubernetes.apiserver.auth import User
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.real.recording import Exchange, RecordedWatch, Recording
    from tests.real.differential.timeline import Placed

_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_NODES_GROUP = "system:nodes"


@dataclass
class Result:
    """What was repeated: how many requests, how many of which kind were left out, and the unexplained differences."""

    repeated: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)
    watches: list[str] = field(default_factory=list)

    def texts(self) -> list[str]:
        """A text for each difference, also of watches."""
        return [*(str(difference) for difference in self.differences), *self.watches]


def replay(recording: Recording) -> Result:
    """Repeat every request of the recording whose kind the embedded server serves."""
    return _Replay(recording).run()


class _Replay:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._timeline = Timeline(recording)
        self._store = ReplayedStore()
        self._playing: Exchange
        self._api = Api(self._store, authenticate=lambda _: self._playing.user, authorize=self._authorize)
        self._rbac = Rbac(self._store)
        self._tokens: dict[str, str] = {}
        self._nearest: dict[str, list[Difference]] = {}
        self._custom_resources = {
            revision.object["metadata"]["name"]
            for revision in recording.revisions
            if revision.object["kind"] == "CustomResourceDefinition"
        }
        self._result = Result()

    def run(self) -> Result:
        """Set the store to each recorded state in turn, and repeat the requests that may have been answered on it."""
        placed = [self._timeline.place(exchange) for exchange in self._recording.exchanges if self._is_served(exchange)]
        upcoming = deque(sorted(placed, key=lambda p: p.first))
        waiting: list[Placed] = []
        for revision in [None, *self._recording.revisions]:
            if revision is not None:
                self._store.set(revision)
            end = self._timeline.state_after(revision.number if revision else 0)
            while upcoming and upcoming[0].first < end:
                waiting.append(upcoming.popleft())
            waiting = [p for p in waiting if not self._is_settled(p, is_last=p.last < end)]
        for watch in self._recording.watches:
            self._result.watches += watch_differences(watch, self._events(watch))
        return self._result

    def _events(self, watch: RecordedWatch) -> list[tuple[str, Obj]]:
        """The events that a watch gets from its version to the end of the recording."""
        response = self._api.respond(Request("GET", watch.path, watch.query, {"accept": "application/json"}))
        self._api.stop_watches()  # it ends after what has happened so far
        lines = b"".join(chunk or b"" for chunk in response.stream or ()).splitlines()
        events = [msgspec.json.decode(line) for line in lines]
        return [(event["type"], event["object"]) for event in events]

    def _is_served(self, exchange: Exchange) -> bool:
        resource, _, subresource = exchange.resource.partition("/")
        kind = next((k for k in kinds.BUILT_IN if k.resource == resource), None)
        reason = ""
        if exchange.verb == "watch":
            reason = "watch"
        elif kind is None and resource not in self._custom_resources:
            reason = resource
        elif kind is not None and subresource and subresource not in kind.subresources:
            reason = exchange.resource
        if reason:
            self._result.left_out[reason] += 1
        return not reason

    def _authorize(self, user: User, verb: str, kind: Kind, namespace: str, name: str) -> bool:
        """By RBAC, but for kubelets, which have the Node authorizer, and for reads of a state before their rights."""
        was_read = self._playing.verb in READS and self._playing.status != FORBIDDEN
        return was_read or _NODES_GROUP in user.groups or self._rbac(user, verb, kind, namespace, name)

    def _is_settled(self, placed: Placed, *, is_last: bool) -> bool:
        """Repeat the request on the present state. Whether the answers agree, or this was its last state."""
        exchange = self._playing = placed.exchange
        self._store.time = exchange.received
        response = self._api.respond(self._request(exchange))
        body = msgspec.json.decode(response.body) if response.body else {}
        changes = self._store.undo()
        differences = answer_differences(exchange, response.status, body)
        if placed.written is not None and self._store.version < placed.written.number:
            before = self._store.state_of(placed.written.object)
            differences += effect_differences(exchange, placed.written, before, changes)
        differences = unexplained(differences)
        nearest = self._nearest.setdefault(exchange.id, differences)
        if len(differences) < len(nearest):
            differences = unexplained(differences)
        nearest = self._nearest[exchange.id] = differences
        if differences and not is_last:
            return False
        self._result.repeated += 1
        self._result.differences += nearest
        self._keep_token(exchange, body)
        return True

    def _request(self, exchange: Exchange) -> Request:
        query, headers = dict(exchange.query), exchange.headers
        if not exchange.is_exact and exchange.response.get("kind", "").startswith("PartialObjectMetadata"):
            headers = {**headers, "accept": _METADATA_ONLY}
        if token := query.get("continue"):
            query["continue"] = self._tokens.get(token, token)
        return Request(exchange.method, exchange.path, query, headers, exchange.body)

    def _keep_token(self, exchange: Exchange, body: Any) -> None:
        real = exchange.response.get("metadata", {}).get("continue")
        embedded = body.get("metadata", {}).get("continue") if isinstance(body, dict) else None
        if real and embedded:
            self._tokens[real] = embedded
