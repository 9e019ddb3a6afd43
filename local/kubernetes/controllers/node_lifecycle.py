"""What a cluster does about its nodes: taints that follow their health, pods that must leave, pods left behind.

Three controllers of kube-controller-manager in one (node lifecycle, taint eviction, pod garbage collection), because
they answer one question: what of a node's state concerns its pods. Times from docs/facts/kubernetes.md.
"""

from __future__ import annotations

import heapq
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.controllers.informer import Informer
from local.kubernetes.controllers.object_updates import condition_status, parsed, remove, rewrite, with_condition
from local.kubernetes.conversion import typed
from local.kubernetes.registry.object_meta import timestamp
from shared.api.kubernetes import Taint, Toleration
from shared.api.labels import NOT_READY_TAINT, UNSCHEDULABLE_TAINT
from shared.api.taints import tolerated_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.kubernetes.objects import Change, Obj
    from local.kubernetes.registry.store import Store

TAINTS_FOLLOW_AFTER = timedelta(seconds=0.2)
"""From a node's condition to its taints."""
SILENT_AFTER = timedelta(seconds=40)
"""From a kubelet's last sign of life to Ready=Unknown."""
ORPHANS_GO_AFTER = timedelta(seconds=50)
"""From a node's removal to that of its pods."""

UNREACHABLE_TAINT = "node.kubernetes.io/unreachable"
RENEWED = "local.tenon.sh/renewed"
"""Annotation on a node's lease: its kubelet lives (see local.kubelets.node_objects)."""

_HEALTH = frozenset({NOT_READY_TAINT, UNREACHABLE_TAINT})
_NODE_LEASES = "kube-node-lease"
_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_LEFT_BEHIND = ("DeletionByPodGC", "PodGC: node no longer exists")
_REPELLED = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")


class NodeLifecycle:
    """Taints nodes by their health, deletes pods that don't tolerate it, and pods whose node is gone."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._feed = Informer(store, kinds.LEASES, kinds.NODES, kinds.PODS)
        self._nodes: dict[str, Obj] = {}
        self._pods: dict[str, dict[str, Obj]] = {}
        self._leases: dict[str, Obj] = {}
        self._checks: dict[str, datetime] = {}
        self._since: dict[str, datetime] = {}
        self._agenda: list[tuple[datetime, int, Callable[[datetime], None]]] = []
        self._entries = 0

    def due(self) -> datetime | None:
        """When the next thing that takes its time is due."""
        return self._agenda[0][0] if self._agenda else None

    def step(self, now: datetime) -> bool:
        """Take note of what changed, and do what is due."""
        version, entries = self._store.version, self._entries
        for change in self._feed.take():
            match change.kind.plural:
                case "leases":
                    self._learn_lease(change, now)
                case "nodes":
                    self._learn_node(change, now)
                case _:
                    self._learn_pod(change, now)
        while self._agenda and self._agenda[0][0] <= now:
            heapq.heappop(self._agenda)[2](now)
        return self._store.version != version or self._entries != entries

    def _later(self, when: datetime, do: Callable[[datetime], None]) -> None:
        self._entries += 1
        heapq.heappush(self._agenda, (when, self._entries, do))

    # Nodes

    def _learn_lease(self, change: Change, now: datetime) -> None:
        meta = change.object["metadata"]
        if meta["namespace"] != _NODE_LEASES:
            return
        name = meta["name"]
        if change.type == "DELETED":
            self._leases.pop(name, None)
            return
        self._leases[name] = change.object
        if RENEWED not in (meta.get("annotations") or {}):
            renewed = parsed(change.object["spec"]["renewTime"])
            self._later(max(renewed + SILENT_AFTER, now), lambda at: self._check_sign_of_life(name, at))

    def _check_sign_of_life(self, name: str, now: datetime) -> None:
        lease, node = self._leases.get(name), self._nodes.get(name)
        if lease is None or node is None or RENEWED in (lease["metadata"].get("annotations") or {}):
            return
        if now - parsed(lease["spec"]["renewTime"]) < SILENT_AFTER:
            return

        def change(latest: Obj) -> Obj:
            conditions = latest["status"].get("conditions") or []
            for type_ in _CONDITIONS:
                conditions = with_condition(
                    conditions,
                    type_,
                    status="Unknown",
                    reason="NodeStatusUnknown",
                    message="Kubelet stopped posting node status.",
                    now=now,
                )
            return {**latest, "status": {**latest["status"], "conditions": conditions}}

        rewrite(self._store, kinds.NODES, node, change)
        for pod in list(self._pods.get(name, {}).values()):
            self._mark_not_ready(pod, now)

    def _mark_not_ready(self, pod: Obj, now: datetime) -> None:
        """Nobody can say any more that the pod serves."""
        if condition_status(pod, "Ready") != "True":
            return

        def change(latest: Obj) -> Obj:
            conditions = with_condition(latest["status"]["conditions"], "Ready", status="False", now=now)
            return {**latest, "status": {**latest["status"], "conditions": conditions}}

        rewrite(self._store, kinds.PODS, pod, change)

    def _learn_node(self, change: Change, now: datetime) -> None:
        node = change.object
        name = node["metadata"]["name"]
        if change.type == "DELETED":
            self._nodes.pop(name, None)
            if self._pods.get(name):
                self._later(now + ORPHANS_GO_AFTER, lambda at: self._collect(name, at))
            return
        before = self._nodes.get(name)
        self._nodes[name] = node
        if _wanted_taints(node) != _present_taints(node):
            self._later(now + TAINTS_FOLLOW_AFTER, lambda at: self._follow(node, at))
        if before is None or before["spec"].get("taints") != node["spec"].get("taints"):
            for pod in list(self._pods.get(name, {}).values()):
                self._judge(pod, now)

    def _follow(self, node: Obj, now: datetime) -> None:
        """Make the node's taints say what its conditions say."""

        def change(latest: Obj) -> Obj:
            wanted, present = _wanted_taints(latest), _present_taints(latest)
            if wanted == present:
                return latest
            taints = latest["spec"].get("taints") or []
            kept = [t for t in taints if not _is_ours(t) or (t["key"], t["effect"]) in wanted]
            added: list[Obj] = [
                {"key": key, "effect": effect, "timeAdded": timestamp(now)}
                for key, effect in sorted(wanted - present, reverse=True)
            ]
            spec = {name: value for name, value in latest["spec"].items() if name != "taints"}
            return {**latest, "spec": {**spec, "taints": [*kept, *added]} if kept or added else spec}

        rewrite(self._store, kinds.NODES, node, change)

    # Pods

    def _learn_pod(self, change: Change, now: datetime) -> None:
        pod = change.object
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        if not node:
            return
        if change.type == "DELETED":
            self._pods.get(node, {}).pop(uid, None)
            self._forget(uid)
            return
        arrived = uid not in self._pods.setdefault(node, {})
        self._pods[node][uid] = pod
        if node not in self._nodes and arrived:
            self._later(now + ORPHANS_GO_AFTER, lambda at: self._collect(node, at))
        elif arrived:
            self._judge(pod, now)

    def _collect(self, node: str, now: datetime) -> None:
        """Remove the pods of a node that is not there; nobody can confirm that they have stopped."""
        if node in self._nodes:
            return
        for pod in list(self._pods.get(node, {}).values()):
            self._disrupt(pod, *_LEFT_BEHIND, now=now, failed=True)
            remove(self._store, kinds.PODS, pod, grace=0)

    def _judge(self, pod: Obj, now: datetime) -> None:
        """When does the pod have to leave its node for its NoExecute taints: now, later, or never."""
        uid = pod["metadata"]["uid"]
        when = self._leaves_at(pod, self._since.setdefault(uid, now))
        if when is None:
            self._forget(uid)
        elif when <= now:
            self._repel(pod, now)
        elif self._checks.get(uid) != when:
            self._checks[uid] = when
            self._later(when, lambda at: self._check(pod["spec"]["nodeName"], uid, at))

    def _check(self, node: str, uid: str, now: datetime) -> None:
        pod = self._pods.get(node, {}).get(uid)
        if pod is not None and uid in self._checks and self._checks[uid] <= now:
            self._judge(pod, now)

    def _forget(self, uid: str) -> None:
        self._checks.pop(uid, None)
        self._since.pop(uid, None)

    def _leaves_at(self, pod: Obj, since: datetime) -> datetime | None:
        """When tolerations that hold for some seconds have held so long, from when the taints came."""
        node = self._nodes.get(pod["spec"]["nodeName"])
        if node is None or "deletionTimestamp" in pod["metadata"]:
            return None
        tolerations = [typed(t, Toleration) for t in pod["spec"].get("tolerations") or []]
        earliest: datetime | None = None
        for raw in node["spec"].get("taints") or []:
            taint = typed(raw, Taint)
            if taint.effect != "NoExecute":
                continue
            covering = [t for t in tolerations if tolerated_by(t, taint)]
            if not covering:
                return since
            limits = [t.toleration_seconds for t in covering if t.toleration_seconds is not None]
            if limits:
                when = since + timedelta(seconds=max(min(limits), 0))
                earliest = when if earliest is None else min(earliest, when)
        return earliest

    def _repel(self, pod: Obj, now: datetime) -> None:
        self._forget(pod["metadata"]["uid"])
        self._disrupt(pod, *_REPELLED, now=now, failed=False)
        remove(self._store, kinds.PODS, pod)

    def _disrupt(self, pod: Obj, reason: str, message: str, *, now: datetime, failed: bool) -> None:
        """Say on the pod why it is deleted."""

        def change(latest: Obj) -> Obj:
            status = latest["status"]
            conditions = with_condition(
                status.get("conditions") or [],
                "DisruptionTarget",
                status="True",
                reason=reason,
                message=message,
                now=now,
            )
            phase = "Failed" if failed and status.get("phase") != "Succeeded" else status.get("phase")
            return {**latest, "status": {**status, "conditions": conditions, "phase": phase}}

        rewrite(self._store, kinds.PODS, pod, change)


def _is_ours(taint: Obj) -> bool:
    return taint["key"] in _HEALTH or taint["key"] == UNSCHEDULABLE_TAINT


def _present_taints(node: Obj) -> set[tuple[str, str]]:
    return {(t["key"], t["effect"]) for t in node["spec"].get("taints") or [] if _is_ours(t)}


def _wanted_taints(node: Obj) -> set[tuple[str, str]]:
    """The taints that the node's conditions and cordon call for; a node that never said anything is not ready."""
    wanted: set[tuple[str, str]] = set()
    ready = condition_status(node, "Ready")
    if ready == "Unknown":
        wanted |= {(UNREACHABLE_TAINT, "NoSchedule"), (UNREACHABLE_TAINT, "NoExecute")}
    elif ready == "False":
        wanted |= {(NOT_READY_TAINT, "NoSchedule"), (NOT_READY_TAINT, "NoExecute")}
    elif not ready:
        wanted |= {taint for taint in _present_taints(node) if taint[0] in _HEALTH}
    if node["spec"].get("unschedulable"):
        wanted.add((UNSCHEDULABLE_TAINT, "NoSchedule"))
    return wanted
