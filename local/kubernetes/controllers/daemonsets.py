"""DaemonSets: one pod for every eligible node, tied to it by node affinity and bound by the scheduler."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

from local.kubernetes import kinds
from local.kubernetes.controllers.deployments import template_hash
from local.kubernetes.controllers.owned_pods import ENDED, controller_of, create_pod, is_ready, is_terminating
from local.kubernetes.conversion import convert
from local.kubernetes.informer import Informer
from local.kubernetes.object_updates import delete, update_status
from local.kubernetes.registry.object_meta import generated_name
from shared.api.kubernetes import Node, PodSpec, Toleration
from shared.api.selectors import SelectorError, matches_node
from shared.api.taints import NO_EXECUTE, untolerated
from shared.base.struct import Struct

if TYPE_CHECKING:
    from datetime import datetime

    from local.kubernetes.objects import Change, Obj
    from local.kubernetes.registry.store import Store

REVISION_HASH = "controller-revision-hash"

_TAINT_PREFIX = "node.kubernetes.io/"
_TOLERATED_TAINTS = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)


class DaemonSets:
    """Keeps the pods and the status of every DaemonSet."""

    def __init__(self, store: Store, *, seed: int) -> None:
        self._store = store
        self._rng = random.Random(f"daemonsets/{seed}")  # noqa: S311 (names in a simulation)
        self._informer = Informer(store, kinds.NODES, kinds.DAEMON_SETS, kinds.PODS)
        self._nodes: dict[str, Node] = {}
        self._daemon_sets: dict[str, _DaemonSet] = {}

    def due(self) -> datetime | None:
        """Never by itself."""
        return None

    def step(self, now: datetime) -> bool:  # noqa: ARG002 (nothing here depends on time)
        """Reconcile the pairs of DaemonSet and node with changes."""
        version = self._store.version
        changed: dict[tuple[str, str], None] = {}
        for change in self._informer.pop_changes():
            changed |= dict.fromkeys(self._handle(change))
        reconciled: dict[str, None] = {}
        for uid, node in changed:
            if uid in self._daemon_sets:
                self._reconcile(self._daemon_sets[uid], node)
                self._daemon_sets[uid].count(node, self._nodes.get(node))
                reconciled[uid] = None
        for uid in reconciled:
            self._update_pods(self._daemon_sets[uid])
            self._update_status(self._daemon_sets[uid])
        return self._store.version != version

    def _handle(self, change: Change) -> list[tuple[str, str]]:
        """Take in a change. Returns the pairs of DaemonSet uid and node name that it may affect."""
        obj, deleted = change.object, change.type == "DELETED"
        match change.kind.plural:
            case "nodes":
                return self._handle_node(obj, deleted=deleted)
            case "daemonsets":
                return self._handle_daemon_set(obj, deleted=deleted)
            case _:
                return self._handle_pod(obj, deleted=deleted)

    def _handle_node(self, obj: Obj, *, deleted: bool) -> list[tuple[str, str]]:
        name = obj["metadata"]["name"]
        before = self._nodes.pop(name, None)
        if not deleted:
            node = self._nodes[name] = convert(obj, Node)
            if before is not None and _equal_for_daemons(before, node):
                return []
        return [(uid, name) for uid in self._daemon_sets]

    def _handle_daemon_set(self, obj: Obj, *, deleted: bool) -> list[tuple[str, str]]:
        uid = obj["metadata"]["uid"]
        known = self._daemon_sets.get(uid)
        if deleted:
            self._daemon_sets.pop(uid, None)
            return []
        if known is None:
            self._daemon_sets[uid] = _DaemonSet(obj)
        elif not known.update(obj):
            return []
        return [(uid, node) for node in self._nodes]

    def _handle_pod(self, obj: Obj, *, deleted: bool) -> list[tuple[str, str]]:
        uid, owner, node = obj["metadata"]["uid"], controller_of(obj), _node_of(obj)
        daemon_set = self._daemon_sets.get(owner["uid"]) if owner else None
        if owner is None or daemon_set is None or not node:
            return []
        pods = daemon_set.pods.setdefault(node, {})
        pods.pop(uid, None)
        if not deleted:
            pods[uid] = obj
        elif not pods:
            del daemon_set.pods[node]
        return [(owner["uid"], node)]

    def _reconcile(self, daemon_set: _DaemonSet, node_name: str) -> None:
        """Create the pod that the node lacks, or delete pods that should not be there."""
        if is_terminating(daemon_set.obj):
            return
        node = self._nodes.get(node_name)
        pods = daemon_set.pods.get(node_name, {})
        if node is None:
            return  # the pods of a removed node are garbage-collected
        should_run, may_stay = daemon_set.eligibility(node)
        if should_run and not pods:
            self._create_pod(daemon_set, node_name)
        for pod in pods.values():
            if not may_stay or pod["status"].get("phase") in ENDED:
                delete(self._store, kinds.PODS, pod)

    def _create_pod(self, daemon_set: _DaemonSet, node: str) -> None:
        spec = daemon_set.obj["spec"]["template"]["spec"]
        name = generated_name(f"{daemon_set.obj['metadata']['name']}-", self._rng)
        create_pod(
            self._store,
            kinds.DAEMON_SETS,
            daemon_set.obj,
            name=name,
            labels={REVISION_HASH: daemon_set.hash},
            spec={
                "affinity": with_required_node(spec.get("affinity") or {}, node),
                "tolerations": daemon_set.tolerations,
            },
        )

    def _update_pods(self, daemon_set: _DaemonSet) -> None:
        """Delete pods of an older template, within maxUnavailable."""
        strategy = daemon_set.obj["spec"].get("updateStrategy") or {}
        if daemon_set.total.pods == daemon_set.total.updated or strategy.get("type") == "OnDelete":
            return
        pods = [pod for pods_on_node in daemon_set.pods.values() for pod in pods_on_node.values()]
        outdated = [pod for pod in pods if not is_terminating(pod) and not daemon_set.is_updated(pod)]
        limit = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1)
        max_unavailable = limit if isinstance(limit, int) else max(len(pods) * int(limit.removesuffix("%")) // 100, 1)
        unavailable = daemon_set.total.desired - daemon_set.total.ready
        for pod in sorted(outdated, key=lambda p: (is_ready(p), p["metadata"]["name"])):
            if is_ready(pod):
                if unavailable >= max_unavailable:
                    return
                unavailable += 1
            delete(self._store, kinds.PODS, pod)

    def _update_status(self, daemon_set: _DaemonSet) -> None:
        total = daemon_set.total
        update_status(
            self._store,
            kinds.DAEMON_SETS,
            daemon_set.obj,
            observedGeneration=daemon_set.obj["metadata"].get("generation", 1),
            desiredNumberScheduled=total.desired,
            currentNumberScheduled=total.current,
            numberMisscheduled=total.misscheduled,
            numberReady=total.ready,
            numberAvailable=total.ready or None,
            numberUnavailable=total.desired - total.ready or None,
            updatedNumberScheduled=total.updated or None,
        )


class _Count(Struct):
    """The numbers of a DaemonSet's status, for one node or the sum of all."""

    desired: int = 0
    current: int = 0
    ready: int = 0
    updated: int = 0
    misscheduled: int = 0
    pods: int = 0

    def plus(self, added: _Count, sign: int) -> _Count:
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(added), strict=True)
        return _Count(*(number + sign * change for number, change in pairs))


class _DaemonSet:
    """One DaemonSet, the nodes that its template can run on, and its pods by their node."""

    def __init__(self, obj: Obj) -> None:
        self.pods: dict[str, dict[str, Obj]] = {}
        self.total = _Count()
        self._counts: dict[str, _Count] = {}
        self._eligibility: dict[str, tuple[Node, tuple[bool, bool]]] = {}
        self.obj = obj
        self._read(obj)

    def update(self, obj: Obj) -> bool:
        """Take in the DaemonSet's new state. True if its spec changed."""
        before, self.obj = self.obj, obj
        if obj["spec"] == before["spec"]:
            return False
        self._eligibility.clear()
        self._read(obj)
        return True

    def count(self, name: str, node: Node | None) -> None:
        """Count one node again; None: it was removed."""
        desired = node is not None and self.eligibility(node)[0]
        pods = self.pods.get(name, {}).values()
        count = _Count(
            desired=int(desired),
            current=int(desired and bool(pods)),
            ready=int(desired and any(is_ready(p) and not is_terminating(p) for p in pods)),
            updated=sum(self.is_updated(pod) for pod in pods),
            misscheduled=int(node is not None and not desired and bool(pods)),
            pods=len(pods),
        )
        self.total = self.total.plus(self._counts.pop(name, _Count()), -1).plus(count, 1)
        if count.desired or count.pods:
            self._counts[name] = count

    def _read(self, obj: Obj) -> None:
        template = obj["spec"]["template"]
        self.hash = template_hash(template)
        self.tolerations = [*(template["spec"].get("tolerations") or []), *_added_tolerations(template["spec"])]
        self._spec = convert({**template["spec"], "tolerations": self.tolerations}, PodSpec)

    def is_updated(self, pod: Obj) -> bool:
        """Whether the pod is of the present template."""
        return bool(pod["metadata"]["labels"].get(REVISION_HASH) == self.hash)

    def eligibility(self, node: Node) -> tuple[bool, bool]:
        """Whether a pod should run on the node, and whether a present one may stay."""
        known = self._eligibility.get(node.metadata.name)
        if known is None or known[0] is not node:
            known = self._eligibility[node.metadata.name] = (node, self._compute_eligibility(node))
        return known[1]

    def _compute_eligibility(self, node: Node) -> tuple[bool, bool]:
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
        may_stay = untolerated(self._spec.tolerations, node.spec.taints, effects={NO_EXECUTE}) is None
        return may_stay and untolerated(self._spec.tolerations, node.spec.taints) is None, may_stay


def with_required_node(affinity: Obj, node: str) -> Obj:
    """The affinity with the node's name as its only required node term, as the DaemonSet controller writes it."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    node_affinity = {
        **(affinity.get("nodeAffinity") or {}),
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
    }
    return {**affinity, "nodeAffinity": node_affinity}


def _node_of(pod: Obj) -> str:
    """The node that a DaemonSet's pod is on or tied to."""
    name: str = pod["spec"].get("nodeName") or ""
    if name:
        return name
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or []:
        for field in term.get("matchFields") or []:
            return str(field["values"][0])
    return ""


def _added_tolerations(spec: Obj) -> list[Obj]:
    """The tolerations that every DaemonSet's pods get."""
    added = [{"key": _TAINT_PREFIX + key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED_TAINTS]
    if spec.get("hostNetwork"):
        added.append({"key": f"{_TAINT_PREFIX}network-unavailable", "operator": "Exists", "effect": "NoSchedule"})
    present = [convert(t, Toleration) for t in spec.get("tolerations") or []]
    return [t for t in added if convert(t, Toleration) not in present]


def _equal_for_daemons(a: Node, b: Node) -> bool:
    return a.metadata.labels == b.metadata.labels and a.spec == b.spec
