"""DaemonSets: one pod on every node that the template may run on, pinned to it by affinity, bound by the scheduler."""

from __future__ import annotations

import random
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.controllers.deployments import template_hash
from local.kubernetes.controllers.informer import Informer
from local.kubernetes.controllers.object_updates import remove, set_status
from local.kubernetes.controllers.owned_pods import controller_of, is_ready, make_pod
from local.kubernetes.conversion import typed
from local.kubernetes.registry.object_meta import generated_name
from shared.api.kubernetes import Node, PodSpec, Toleration
from shared.api.selectors import SelectorError, matches_node
from shared.api.taints import NO_EXECUTE, untolerated

if TYPE_CHECKING:
    from datetime import datetime

    from local.kubernetes.objects import Change, Obj
    from local.kubernetes.registry.store import Store

HASH = "controller-revision-hash"

_PREFIX = "node.kubernetes.io/"
_TOLERATED = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
_ENDED = frozenset({"Succeeded", "Failed"})


class DaemonSets:
    """Keeps every DaemonSet's pods where they belong, and its status true."""

    def __init__(self, store: Store, *, seed: int) -> None:
        self._store = store
        self._rng = random.Random(f"daemonsets/{seed}")  # noqa: S311 (names in a simulation)
        self._feed = Informer(store, kinds.NODES, kinds.DAEMON_SETS, kinds.PODS)
        self._nodes: dict[str, Node] = {}
        self._sets: dict[str, _Daemon] = {}

    def due(self) -> datetime | None:
        """Never by itself."""
        return None

    def step(self, now: datetime) -> bool:  # noqa: ARG002 (nothing here depends on time)
        """See to the nodes and DaemonSets that something happened to."""
        version = self._store.version
        affected: dict[tuple[str, str], None] = {}
        for change in self._feed.take():
            affected |= dict.fromkeys(self._learn(change))
        touched: dict[str, None] = {}
        for uid, node in affected:
            if uid in self._sets:
                self._settle(self._sets[uid], node)
                self._sets[uid].count(node, self._nodes.get(node))
                touched[uid] = None
        for uid in touched:
            self._update(self._sets[uid])
            self._report(self._sets[uid])
        return self._store.version != version

    def _learn(self, change: Change) -> list[tuple[str, str]]:
        """Take one change. Returns the pairs of DaemonSet uid and node name that it may matter for."""
        obj, gone = change.object, change.type == "DELETED"
        match change.kind.plural:
            case "nodes":
                return self._learn_node(obj, gone=gone)
            case "daemonsets":
                return self._learn_set(obj, gone=gone)
            case _:
                return self._learn_pod(obj, gone=gone)

    def _learn_node(self, obj: Obj, *, gone: bool) -> list[tuple[str, str]]:
        name = obj["metadata"]["name"]
        before = self._nodes.pop(name, None)
        if not gone:
            node = self._nodes[name] = typed(obj, Node)
            if before is not None and _same_for_daemons(before, node):
                return []
        return [(daemon, name) for daemon in self._sets]

    def _learn_set(self, obj: Obj, *, gone: bool) -> list[tuple[str, str]]:
        uid = obj["metadata"]["uid"]
        known = self._sets.get(uid)
        if gone:
            self._sets.pop(uid, None)
            return []
        if known is None:
            self._sets[uid] = _Daemon(obj)
        elif not known.renew(obj):
            return []
        return [(uid, node) for node in self._nodes]

    def _learn_pod(self, obj: Obj, *, gone: bool) -> list[tuple[str, str]]:
        uid, owner, target = obj["metadata"]["uid"], controller_of(obj), _target(obj)
        daemon = self._sets.get(owner["uid"]) if owner else None
        if owner is None or daemon is None or not target:
            return []
        pods = daemon.pods.setdefault(target, {})
        pods.pop(uid, None)
        if not gone:
            pods[uid] = obj
        elif not pods:
            del daemon.pods[target]
        return [(owner["uid"], target)]

    def _settle(self, daemon: _Daemon, node_name: str) -> None:
        """Make the pod that the node lacks, or delete what should not be there."""
        if "deletionTimestamp" in daemon.obj["metadata"]:
            return
        node = self._nodes.get(node_name)
        pods = daemon.pods.get(node_name, {})
        if node is None:
            return  # the pods of a node that is gone are collected with it
        runs, stays = daemon.belongs(node)
        if runs and not pods:
            self._make(daemon, node_name)
        for pod in pods.values():
            if not stays or pod["status"].get("phase") in _ENDED:
                remove(self._store, kinds.PODS, pod)

    def _make(self, daemon: _Daemon, node: str) -> None:
        spec = daemon.obj["spec"]["template"]["spec"]
        name = generated_name(f"{daemon.obj['metadata']['name']}-", self._rng)
        make_pod(
            self._store,
            kinds.DAEMON_SETS,
            daemon.obj,
            name=name,
            labels={HASH: daemon.hash},
            spec={"affinity": pinned(spec.get("affinity") or {}, node), "tolerations": daemon.tolerations},
        )

    def _update(self, daemon: _Daemon) -> None:
        """Replace pods of an older template, no more at a time than may be missing."""
        strategy = daemon.obj["spec"].get("updateStrategy") or {}
        if daemon.total.pods == daemon.total.updated or strategy.get("type") == "OnDelete":
            return
        every = [pod for pods in daemon.pods.values() for pod in pods.values()]
        old = [p for p in every if p["metadata"]["labels"].get(HASH) != daemon.hash and not _leaving(p)]
        most = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1)
        allowed = most if isinstance(most, int) else max(len(every) * int(most.removesuffix("%")) // 100, 1)
        missing = daemon.total.wanted - daemon.total.ready
        for pod in sorted(old, key=lambda p: (is_ready(p), p["metadata"]["name"])):
            if is_ready(pod):
                if missing >= allowed:
                    return
                missing += 1
            remove(self._store, kinds.PODS, pod)

    def _report(self, daemon: _Daemon) -> None:
        total = daemon.total
        set_status(
            self._store,
            kinds.DAEMON_SETS,
            daemon.obj,
            observedGeneration=daemon.obj["metadata"].get("generation", 1),
            desiredNumberScheduled=total.wanted,
            currentNumberScheduled=total.current,
            numberMisscheduled=total.misplaced,
            numberReady=total.ready,
            numberAvailable=total.ready or None,
            numberUnavailable=total.wanted - total.ready or None,
            updatedNumberScheduled=total.updated or None,
        )


@dataclass(frozen=True)
class _Count:
    """How one node, or all of them, stand with a DaemonSet."""

    wanted: int = 0
    current: int = 0
    ready: int = 0
    updated: int = 0
    misplaced: int = 0
    pods: int = 0

    def plus(self, other: _Count, sign: int) -> _Count:
        pairs = zip(astuple(self), astuple(other), strict=True)
        return _Count(*(mine + sign * theirs for mine, theirs in pairs))


class _Daemon:
    """One DaemonSet, what its template means for nodes, and its pods by the node they are for."""

    def __init__(self, obj: Obj) -> None:
        self.pods: dict[str, dict[str, Obj]] = {}
        self.total = _Count()
        self._counts: dict[str, _Count] = {}
        self._known: dict[str, tuple[Node, tuple[bool, bool]]] = {}
        self.obj = obj
        self._read(obj)

    def renew(self, obj: Obj) -> bool:
        """Take the DaemonSet's new state. True if it asks for something else than before."""
        before, self.obj = self.obj, obj
        if obj["spec"] == before["spec"]:
            return False
        self._known.clear()
        self._read(obj)
        return True

    def count(self, name: str, node: Node | None) -> None:
        """Count one node anew; None: it is gone."""
        wanted = node is not None and self.belongs(node)[0]
        pods = self.pods.get(name, {}).values()
        now = _Count(
            wanted=int(wanted),
            current=int(wanted and bool(pods)),
            ready=int(wanted and any(is_ready(p) and not _leaving(p) for p in pods)),
            updated=sum(p["metadata"]["labels"].get(HASH) == self.hash for p in pods),
            misplaced=int(node is not None and not wanted and bool(pods)),
            pods=len(pods),
        )
        self.total = self.total.plus(self._counts.pop(name, _Count()), -1).plus(now, 1)
        if now.wanted or now.pods:
            self._counts[name] = now

    def _read(self, obj: Obj) -> None:
        template = obj["spec"]["template"]
        self.hash = template_hash(template)
        self.tolerations = [*(template["spec"].get("tolerations") or []), *_added(template["spec"])]
        self._spec = typed({**template["spec"], "tolerations": self.tolerations}, PodSpec)

    def belongs(self, node: Node) -> tuple[bool, bool]:
        """Whether a pod should be made for the node, and whether one that is there may stay."""
        known = self._known.get(node.metadata.name)
        if known is None or known[0] is not node:
            known = self._known[node.metadata.name] = (node, self._judge(node))
        return known[1]

    def _judge(self, node: Node) -> tuple[bool, bool]:
        labels = node.metadata.labels
        if any(labels.get(key) != value for key, value in self._spec.node_selector.items()):
            return False, False
        affinity = self._spec.affinity.node_affinity if self._spec.affinity else None
        required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
        try:
            if not matches_node(required, labels, name=node.metadata.name):
                return False, False
        except SelectorError:
            return False, False
        stays = untolerated(self._spec.tolerations, node.spec.taints, effects={NO_EXECUTE}) is None
        return stays and untolerated(self._spec.tolerations, node.spec.taints) is None, stays


def pinned(affinity: Obj, node: str) -> Obj:
    """The affinity with the node's name as its only required node term, as the DaemonSet controller writes it."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    node_affinity = {
        **(affinity.get("nodeAffinity") or {}),
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
    }
    return {**affinity, "nodeAffinity": node_affinity}


def _target(pod: Obj) -> str:
    """The node a daemon's pod is on, or is meant for."""
    name: str = pod["spec"].get("nodeName") or ""
    if name:
        return name
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or []:
        for field in term.get("matchFields") or []:
            return str(field["values"][0])
    return ""


def _added(spec: Obj) -> list[Obj]:
    """The tolerations that every daemon gets."""
    every = [{"key": _PREFIX + key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED]
    if spec.get("hostNetwork"):
        every.append({"key": f"{_PREFIX}network-unavailable", "operator": "Exists", "effect": "NoSchedule"})
    present = [typed(t, Toleration) for t in spec.get("tolerations") or []]
    return [t for t in every if typed(t, Toleration) not in present]


def _leaving(pod: Obj) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _same_for_daemons(a: Node, b: Node) -> bool:
    return a.metadata.labels == b.metadata.labels and a.spec == b.spec
