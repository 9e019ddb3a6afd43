"""Bindings checked against the pods' own rules at the moment they are made: maxSkew of spreads, and anti-affinity.

A plan may keep the rules in the end and break them on the way, so each binding is judged, one second after it: the
scheduler's bindings are written at the same time, so they are observed in another order than they were decided in.
Only required rules with matchLabels are known, which is what the workloads here have.
"""

from __future__ import annotations

from collections import Counter, deque
from datetime import timedelta
from typing import TYPE_CHECKING

from local.kubernetes import kinds
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from local.kubernetes.objects import Change, Obj
    from local.kubernetes.registry.store import Store

_NEW_NODE = timedelta(seconds=2)
"""A node this new may not have been known to the scheduler when it decided."""
_DELAY = timedelta(seconds=1)


class _Binding(Struct):
    """A binding that is judged later, and the nodes that the scheduler knew when it was made."""

    pod: Obj
    at: datetime
    known_nodes: frozenset[str]


class Placements:
    """Watches the bindings of a world's pods; call :meth:`violations` at the end."""

    def __init__(self, store: Store, *, now: Callable[[], datetime]) -> None:
        self._now = now
        self._bound: dict[str, Obj] = {}
        self._nodes: dict[str, tuple[Obj, datetime]] = {}
        self._unchecked: deque[_Binding] = deque()
        self._violations: list[str] = []
        with store.lock:
            for node in store.list(kinds.NODES):
                self._nodes[node["metadata"]["name"]] = (node, now())
            for pod in store.list(kinds.PODS):
                if pod["spec"].get("nodeName"):
                    self._bound[pod["metadata"]["uid"]] = pod
            self.close = store.subscribe(self._observe)

    def violations(self) -> list[str]:
        """A text for each binding so far that broke a rule."""
        self._check(self._now() + _DELAY)
        return self._violations

    def _observe(self, change: Change) -> None:
        self._check(self._now())
        obj = change.object
        name, uid = obj["metadata"]["name"], obj["metadata"]["uid"]
        if change.kind.kind == "Node":
            if change.type == "DELETED":
                self._nodes.pop(name, None)
            else:
                self._nodes[name] = (obj, self._nodes.get(name, (obj, self._now()))[1])
        if change.kind.kind != "Pod":
            return
        ended = obj["status"].get("phase") in {"Succeeded", "Failed"}
        if change.type == "DELETED" or ended or "deletionTimestamp" in obj["metadata"]:
            self._bound.pop(uid, None)
        elif obj["spec"].get("nodeName"):
            if uid not in self._bound:
                known = frozenset(n for n, (_, since) in self._nodes.items() if self._now() - since >= _NEW_NODE)
                self._unchecked.append(_Binding(obj, self._now(), known))
            self._bound[uid] = obj

    def _check(self, now: datetime) -> None:
        while self._unchecked and self._unchecked[0].at + _DELAY <= now:
            binding = self._unchecked.popleft()
            if binding.pod["metadata"]["uid"] in self._bound:
                self._violations += self._broken_rules(binding)

    def _broken_rules(self, binding: _Binding) -> Iterator[str]:
        """The rules that are broken in the binding's domain."""
        pod = binding.pod
        name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
        for spread in pod["spec"].get("topologySpreadConstraints") or []:
            if spread["whenUnsatisfiable"] != "DoNotSchedule":
                continue
            counts = self._counts(binding, spread["topologyKey"], spread["labelSelector"]["matchLabels"])
            skew = counts[self._domain(node, spread["topologyKey"])] - min(counts.values(), default=0)
            if skew > spread["maxSkew"]:
                yield f"{name} on {node}: skew {skew} over {spread['topologyKey']}, at most {spread['maxSkew']}"
        anti = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
        for term in anti.get("requiredDuringSchedulingIgnoredDuringExecution") or []:
            counts = self._counts(binding, term["topologyKey"], term["labelSelector"]["matchLabels"])
            if counts[self._domain(node, term["topologyKey"])] > 1:
                yield f"{name} on {node}: with a pod that its anti-affinity excludes"

    def _counts(self, binding: _Binding, key: str, selector: dict[str, str]) -> Counter[str]:
        """How many selected pods each domain has; domains are those of nodes that the scheduler knew at the binding."""
        pod = binding.pod
        counts: Counter[str] = Counter()
        for name in binding.known_nodes:
            if self._domain(name, key):
                counts[self._domain(name, key)] += 0
        for bound_pod in self._bound.values():
            labels = bound_pod["metadata"].get("labels") or {}
            same_namespace = bound_pod["metadata"]["namespace"] == pod["metadata"]["namespace"]
            if same_namespace and all(labels.get(name) == value for name, value in selector.items()):
                counts[self._domain(bound_pod["spec"]["nodeName"], key)] += 1
        return counts

    def _domain(self, node: str, key: str) -> str:
        if node not in self._nodes:
            return ""
        return str(self._nodes[node][0]["metadata"].get("labels", {}).get(key, ""))
