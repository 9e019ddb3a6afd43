"""Nodes' health: taints by condition, eviction of pods by NoExecute taints, and garbage collection of pods.

Three controllers of kube-controller-manager in one (node lifecycle, taint eviction, pod garbage collection), because
they share the state of nodes and their pods. Delays are kube-controller-manager's (docs/facts/kubernetes.md).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.agenda import Agenda
from local.kubernetes.conditions import condition_status, with_condition
from local.kubernetes.conversion import convert
from local.kubernetes.informer import Informer
from local.kubernetes.object_updates import delete, update
from local.kubernetes.objects import parse_timestamp, timestamp
from shared.api.kubernetes import Taint, Toleration
from shared.api.labels import NOT_READY_TAINT, UNSCHEDULABLE_TAINT
from shared.api.taints import tolerated_by

if TYPE_CHECKING:
    from local.kubernetes.objects import Change, Obj
    from local.kubernetes.registry.store import Store

TAINT_DELAY = timedelta(seconds=0.2)
"""From a change of a node's condition to its taints."""
NODE_MONITOR_GRACE_PERIOD = timedelta(seconds=40)
"""From a kubelet's last heartbeat to Ready=Unknown."""
POD_GC_DELAY = timedelta(seconds=50)
"""From a node's removal to the removal of its pods."""

UNREACHABLE_TAINT = "node.kubernetes.io/unreachable"
RENEWED_CONTINUOUSLY = "local.tenon.sh/renewed"
"""Annotation on a node's lease whose kubelet renews it continuously, which is not written each time."""

_CONDITION_TAINTS = frozenset({NOT_READY_TAINT, UNREACHABLE_TAINT})
_NODE_LEASES = "kube-node-lease"
_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_POD_GC = ("DeletionByPodGC", "PodGC: node no longer exists")
_TAINT_EVICTION = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")


class NodeLifecycle:
    """Taints nodes by their conditions, and deletes pods that don't tolerate the taints or whose node is gone."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._informer = Informer(store, kinds.LEASES, kinds.NODES, kinds.PODS)
        self._nodes: dict[str, Obj] = {}
        self._pods: dict[str, dict[str, Obj]] = {}
        self._leases: dict[str, Obj] = {}
        self._scheduled_evictions: dict[str, datetime] = {}
        self._tainted_since: dict[str, datetime] = {}
        self._agenda = Agenda()
        self._at = self._agenda.at

    def due(self) -> datetime | None:
        """When the next delayed action is due."""
        return self._agenda.due()

    def step(self, now: datetime) -> bool:
        """Take in all changes, and do what is due."""
        version, added = self._store.version, self._agenda.added
        for change in self._informer.pop_changes():
            match change.kind.plural:
                case "leases":
                    self._handle_lease(change, now)
                case "nodes":
                    self._handle_node(change, now)
                case _:
                    self._handle_pod(change, now)
        self._agenda.run(now)
        return self._store.version != version or self._agenda.added != added

    # Nodes

    def _handle_lease(self, change: Change, now: datetime) -> None:
        meta = change.object["metadata"]
        if meta["namespace"] != _NODE_LEASES:
            return
        name = meta["name"]
        if change.type == "DELETED":
            self._leases.pop(name, None)
            return
        self._leases[name] = change.object
        if RENEWED_CONTINUOUSLY not in (meta.get("annotations") or {}):
            renewed = parse_timestamp(change.object["spec"]["renewTime"])
            self._at(max(renewed + NODE_MONITOR_GRACE_PERIOD, now), lambda at: self._check_heartbeat(name, at))

    def _check_heartbeat(self, name: str, now: datetime) -> None:
        lease, node = self._leases.get(name), self._nodes.get(name)
        if lease is None or node is None or RENEWED_CONTINUOUSLY in (lease["metadata"].get("annotations") or {}):
            return
        if now - parse_timestamp(lease["spec"]["renewTime"]) < NODE_MONITOR_GRACE_PERIOD:
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

        update(self._store, kinds.NODES, node, change)
        for pod in list(self._pods.get(name, {}).values()):
            self._set_pod_not_ready(pod, now)

    def _set_pod_not_ready(self, pod: Obj, now: datetime) -> None:
        """Set the pod's Ready condition to False: its kubelet no longer reports it."""
        if condition_status(pod, "Ready") != "True":
            return

        def change(latest: Obj) -> Obj:
            conditions = with_condition(latest["status"]["conditions"], "Ready", status="False", now=now)
            return {**latest, "status": {**latest["status"], "conditions": conditions}}

        update(self._store, kinds.PODS, pod, change)

    def _handle_node(self, change: Change, now: datetime) -> None:
        node = change.object
        name = node["metadata"]["name"]
        if change.type == "DELETED":
            self._nodes.pop(name, None)
            if self._pods.get(name):
                self._at(now + POD_GC_DELAY, lambda at: self._collect_garbage(name, at))
            return
        before = self._nodes.get(name)
        self._nodes[name] = node
        if _expected_taints(node) != _present_taints(node):
            self._at(now + TAINT_DELAY, lambda at: self._update_taints(node, at))
        if before is None or before["spec"].get("taints") != node["spec"].get("taints"):
            for pod in list(self._pods.get(name, {}).values()):
                self._check_taints(pod, now)

    def _update_taints(self, node: Obj, now: datetime) -> None:
        """Make the node's taints match its conditions."""

        def change(latest: Obj) -> Obj:
            expected, present = _expected_taints(latest), _present_taints(latest)
            if expected == present:
                return latest
            taints = latest["spec"].get("taints") or []
            kept = [t for t in taints if not _is_managed(t) or (t["key"], t["effect"]) in expected]
            added: list[Obj] = [
                {"key": key, "effect": effect, "timeAdded": timestamp(now)}
                for key, effect in sorted(expected - present, reverse=True)
            ]
            spec = {name: value for name, value in latest["spec"].items() if name != "taints"}
            return {**latest, "spec": {**spec, "taints": [*kept, *added]} if kept or added else spec}

        update(self._store, kinds.NODES, node, change)

    # Pods

    def _handle_pod(self, change: Change, now: datetime) -> None:
        pod = change.object
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        if not node:
            return
        if change.type == "DELETED":
            self._pods.get(node, {}).pop(uid, None)
            self._forget(uid)
            return
        is_new = uid not in self._pods.setdefault(node, {})
        self._pods[node][uid] = pod
        if node not in self._nodes and is_new:
            self._at(now + POD_GC_DELAY, lambda at: self._collect_garbage(node, at))
        elif is_new:
            self._check_taints(pod, now)

    def _collect_garbage(self, node: str, now: datetime) -> None:
        """Remove the pods of a node that does not exist; no kubelet can confirm that they have stopped."""
        if node in self._nodes:
            return
        for pod in list(self._pods.get(node, {}).values()):
            self._set_disruption_target(pod, *_POD_GC, now=now, failed=True)
            delete(self._store, kinds.PODS, pod, grace_period=0)

    def _check_taints(self, pod: Obj, now: datetime) -> None:
        """Evict the pod now, later or never, by the node's NoExecute taints and its tolerations."""
        uid = pod["metadata"]["uid"]
        time = self._eviction_time(pod, self._tainted_since.setdefault(uid, now))
        if time is None:
            self._forget(uid)
        elif time <= now:
            self._evict(pod, now)
        elif self._scheduled_evictions.get(uid) != time:
            self._scheduled_evictions[uid] = time
            self._at(time, lambda at: self._evict_if_due(pod["spec"]["nodeName"], uid, at))

    def _evict_if_due(self, node: str, uid: str, now: datetime) -> None:
        pod = self._pods.get(node, {}).get(uid)
        if pod is not None and uid in self._scheduled_evictions and self._scheduled_evictions[uid] <= now:
            self._check_taints(pod, now)

    def _forget(self, uid: str) -> None:
        self._scheduled_evictions.pop(uid, None)
        self._tainted_since.pop(uid, None)

    def _eviction_time(self, pod: Obj, since: datetime) -> datetime | None:
        """When the pod must be evicted: at once for an untolerated taint, else after tolerationSeconds; None: never."""
        node = self._nodes.get(pod["spec"]["nodeName"])
        if node is None or "deletionTimestamp" in pod["metadata"]:
            return None
        tolerations = [convert(t, Toleration) for t in pod["spec"].get("tolerations") or []]
        taints = [convert(taint, Taint) for taint in node["spec"].get("taints") or []]
        limits = [_toleration_seconds(taint, tolerations) for taint in taints if taint.effect == "NoExecute"]
        seconds = [limit for limit in limits if limit is not None]
        return since + timedelta(seconds=min(seconds)) if seconds else None

    def _evict(self, pod: Obj, now: datetime) -> None:
        self._forget(pod["metadata"]["uid"])
        self._set_disruption_target(pod, *_TAINT_EVICTION, now=now, failed=False)
        delete(self._store, kinds.PODS, pod)

    def _set_disruption_target(self, pod: Obj, reason: str, message: str, *, now: datetime, failed: bool) -> None:
        """Set the pod's DisruptionTarget condition, and its phase if it failed."""

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

        update(self._store, kinds.PODS, pod, change)


def _toleration_seconds(taint: Taint, tolerations: list[Toleration]) -> int | None:
    """How long the taint is tolerated: 0 if it is not, None for an unlimited time."""
    tolerating = [toleration for toleration in tolerations if tolerated_by(toleration, taint)]
    if not tolerating:
        return 0
    limits = [t.toleration_seconds for t in tolerating if t.toleration_seconds is not None]
    return max(min(limits), 0) if limits else None


def _is_managed(taint: Obj) -> bool:
    return taint["key"] in _CONDITION_TAINTS or taint["key"] == UNSCHEDULABLE_TAINT


def _present_taints(node: Obj) -> set[tuple[str, str]]:
    return {(t["key"], t["effect"]) for t in node["spec"].get("taints") or [] if _is_managed(t)}


def _expected_taints(node: Obj) -> set[tuple[str, str]]:
    """The taints for the node's conditions and cordon; without a Ready condition, its health taints are kept."""
    taints: set[tuple[str, str]] = set()
    ready = condition_status(node, "Ready")
    if ready == "Unknown":
        taints |= {(UNREACHABLE_TAINT, "NoSchedule"), (UNREACHABLE_TAINT, "NoExecute")}
    elif ready == "False":
        taints |= {(NOT_READY_TAINT, "NoSchedule"), (NOT_READY_TAINT, "NoExecute")}
    elif not ready:
        taints |= {taint for taint in _present_taints(node) if taint[0] in _CONDITION_TAINTS}
    if node["spec"].get("unschedulable"):
        taints.add((UNSCHEDULABLE_TAINT, "NoSchedule"))
    return taints
