"""The scheduler: binds pending pods to their best nodes, or reports why no node is feasible.

It has kube-scheduler's rules, order, scores and messages (docs/facts/kubernetes.md) and shares no placement code with
Tenon, so Tenon's plans are checked by it. An unschedulable pod is tried again when a change concerns a plugin that
rejected it.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from random import Random
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import msgspec

from local.kubernetes import kinds
from local.kubernetes.conditions import with_condition
from local.kubernetes.conversion import convert
from local.kubernetes.errors import CONFLICT, NOT_FOUND, ApiError
from local.kubernetes.informer import Informer
from local.kubernetes.object_updates import record_event, update
from local.kubernetes.scheduler import dynamic_devices, queueing_hints, volume_plugins
from local.kubernetes.scheduler.cache import Cache
from local.kubernetes.scheduler.node_info import PodInfo
from local.kubernetes.scheduler.pod_signature import PodSignature, signature_of
from local.kubernetes.scheduler.scheduling_cycle import NodeSearch, SchedulingCycle
from local.kubernetes.scheduler.scheduling_queue import QueuedPod, SchedulingQueue
from local.kubernetes.scheduler.volume_plugins import SELECTED_NODE, VolumeBinder, is_bound
from local.kubernetes.scheduler.workload_selectors import WorkloadSelectors
from shared.api.kubernetes import RESIZE_PENDING, Node, Pod
from shared.api.quantity import QuantityError

if TYPE_CHECKING:
    from local.kubernetes.objects import Change, Obj
    from local.kubernetes.registry.store import Store

NAME = "default-scheduler"
VERSION = "1.36"
"""The version whose rules are followed; where another's differ, :mod:`queueing_hints` says how."""
REPORT_INTERVAL = timedelta(minutes=1)
"""A pending pod gets a changed message at most this often; kube-scheduler writes it with every attempt."""

ATTEMPT = timedelta(milliseconds=1)
STATUS_PATCH = timedelta(milliseconds=5)
"""How long kube-scheduler takes for an attempt, and for the status patch after one that failed with a changed message.

The pods behind wait for both: nominations that are set meanwhile are lost with the attempts that are still to come."""
_SLICE = timedelta(milliseconds=25)
"""Attempts are made together until they take this long, so that a step has many of them."""

_ENDED = frozenset({"Succeeded", "Failed"})


class Scheduler:
    """One step takes in all changes and tries pods, highest priority and oldest first, for as long as a slice takes."""

    def __init__(self, store: Store, *, seed: int = 0, version: str = VERSION) -> None:
        """A scheduler of this cluster and version; the seed decides among nodes with equal scores."""
        self._store = store
        self._minor = int(version.split(".")[1])
        self._busy_until: datetime | None = None
        self._informer = Informer(
            store,
            kinds.NAMESPACES,
            kinds.NODES,
            *volume_plugins.kinds_of(self._minor),
            *dynamic_devices.KINDS,
            kinds.SERVICES,
            kinds.REPLICATION_CONTROLLERS,
            kinds.REPLICA_SETS,
            kinds.STATEFUL_SETS,
            kinds.PODS,
        )
        self._rng = Random(seed)  # noqa: S311 (chooses among equal nodes)
        self._cache = Cache()
        self._volumes = VolumeBinder()
        self._devices = dynamic_devices.DynamicDevices(self._cache)
        self._workloads = WorkloadSelectors()
        self._queue = SchedulingQueue()
        self._search = NodeSearch()
        self._cycles: dict[bytes, SchedulingCycle] = {}
        self._assumed: dict[str, tuple[QueuedPod, str]] = {}
        """Pods that wait on their node for their volumes, by uid."""
        self._signatures: dict[str, tuple[Obj, Obj, object, PodSignature]] = {}
        """By uid: the spec, the labels, the state of a resize, and the signature that follows from them."""
        self._signatures_by_key: WeakValueDictionary[bytes, PodSignature] = WeakValueDictionary()
        self._wrote = False

    def due(self) -> datetime | None:
        """When there is a pod to try: after those that are being tried, after an error back-off, or after 5 minutes."""
        return self._busy_until if self._queue.has_active_pods else self._queue.due()

    def step(self, now: datetime) -> bool:
        """Take in all changes and try the next pods, unless those of the last step still take their time."""
        self._wrote = False
        changes = self._informer.pop_changes()
        for change in changes:
            self._handle(change, now)
        if changes and self._assumed:
            self._bind_assumed(now)
        self._queue.flush(now)
        if self._busy_until is None or self._busy_until <= now:
            self._try_pods(now)
        return self._wrote

    def _try_pods(self, now: datetime) -> None:
        end = now
        while end - now < _SLICE and (pod := self._queue.pop()) is not None:
            end += self._schedule(pod, end)
        self._busy_until = end
        self._forget_unused_cycles()

    # Changes

    def _handle(self, change: Change, now: datetime) -> None:
        plural, obj = change.kind.plural, change.object
        deleted = change.type == "DELETED"
        if plural == "pods":
            self._handle_pod(change, now, deleted=deleted)
        elif plural == "nodes":
            self._handle_node(obj, now, deleted=deleted)
        elif plural in volume_plugins.PLURALS:
            self._volumes.update(plural, obj, deleted=deleted)
            self._queue.move(queueing_hints.after_volume_change, now)
        elif plural in dynamic_devices.PLURALS:
            self._devices.update(plural, obj, deleted=deleted)
            self._queue.move(queueing_hints.after_device_change, now)
        elif plural == "namespaces":
            self._handle_namespace(obj, deleted=deleted)
        elif self._workloads.update(obj, deleted=deleted):
            self._cycles.clear()

    def _handle_node(self, obj: Obj, now: datetime, *, deleted: bool) -> None:
        """Update a node in the cache; a malformed one gets no pods."""
        name = obj["metadata"]["name"]
        known = self._cache.nodes.get(name)
        before = known.node if known is not None else None
        after: Node | None = None
        if not deleted:
            with suppress(QuantityError, msgspec.ValidationError):
                node = convert(obj, Node)
                self._cache.update_node(node)
                after = node
        if after is None:
            self._cache.remove_node(name)
        change = queueing_hints.NodeChange(before, after, self._minor)
        if change.is_relevant:
            self._queue.move(change.is_worth_requeuing, now)

    def _handle_namespace(self, obj: Obj, *, deleted: bool) -> None:
        name, labels = obj["metadata"]["name"], obj["metadata"].get("labels") or {}
        before = self._cache.namespaces.pop(name, None)
        if not deleted:
            self._cache.namespaces[name] = labels
        if before != self._cache.namespaces.get(name):
            self._cache.rebuild_pod_counts()
            self._cycles.clear()

    def _handle_pod(self, change: Change, now: datetime, *, deleted: bool) -> None:
        pod = change.object
        meta, spec = pod["metadata"], pod["spec"]
        uid = meta["uid"]
        terminating = "deletionTimestamp" in meta
        node = spec.get("nodeName")
        ended = deleted or pod["status"].get("phase") in _ENDED
        if ended or (not node and (terminating or spec.get("schedulerName") != NAME)):
            self._forget(uid, now)
            return
        try:
            signature = self._signature(pod)
        except (QuantityError, msgspec.ValidationError) as error:
            self._forget(uid, now)
            self._set_unscheduled(pod, "SchedulerError", str(error), now)
            return
        if node:
            self._handle_bound_pod(PodInfo(uid, signature, terminating), node, change.previous, now)
        elif gates := spec.get("schedulingGates"):
            names = " ".join(gate["name"] for gate in gates)
            message = f"Scheduling is blocked due to non-empty scheduling gates [{names}]"
            self._set_unscheduled(pod, "SchedulingGated", message, now)
        elif uid not in self._assumed:
            self._handle_pending_pod(pod, signature, change.previous, now)

    def _handle_bound_pod(self, pod: PodInfo, node: str, previous: Obj | None, now: datetime) -> None:
        self._queue.remove(pod.uid)
        self._assumed.pop(pod.uid, None)
        self._cache.remove_nomination(pod.uid)
        self._cache.add_pod(node, pod)
        if previous is None or not previous["spec"].get("nodeName"):
            self._queue.move(queueing_hints.after_pod_added(pod.signature, self._cache.namespaces), now)
        elif previous["spec"] != self._signatures[pod.uid][0] or (
            (previous["metadata"].get("labels") or {}) != pod.signature.labels
            or _resize_state(previous) != self._signatures[pod.uid][2]
        ):
            self._queue.move(queueing_hints.after_pod_updated, now)

    def _handle_pending_pod(self, pod: Obj, signature: PodSignature, previous: Obj | None, now: datetime) -> None:
        """Queue the pod, or update it in the queue; a nomination that others set or clear counts at once."""
        uid = pod["metadata"]["uid"]
        known = self._queue.get(uid)
        if known is None:
            self._queue.add(QueuedPod(pod, signature, now))
        elif known.signature.key != signature.key:
            self._queue.add(QueuedPod(pod, signature, known.timestamp, message=known.message))
        else:
            known.pod = pod
        nominated = pod["status"].get("nominatedNodeName") or ""
        if nominated:
            self._cache.nominate(PodInfo(uid, signature), nominated)
        else:
            self._cache.remove_nomination(uid)
        nominated_before = previous["status"].get("nominatedNodeName") if previous is not None else None
        if nominated_before and nominated_before != nominated:
            self._move_after_nomination(signature, now)

    def _move_after_nomination(self, signature: PodSignature, now: datetime) -> None:
        """Retry the pods that yielded to a nomination that is no longer there."""
        namespaces = self._cache.namespaces
        hint = queueing_hints.after_pod_removed(signature, namespaces, priority=signature.priority)
        self._queue.move(hint, now)

    def _signature(self, pod: Obj) -> PodSignature:
        """The pod's signature, computed once for each state of its spec, labels and resize."""
        uid, spec, labels = pod["metadata"]["uid"], pod["spec"], pod["metadata"].get("labels") or {}
        resize_state = _resize_state(pod)
        known = self._signatures.get(uid)
        if known is not None and known[0] is spec and known[1] == labels and known[2] == resize_state:
            return known[3]
        signature = signature_of(convert(pod, Pod), self._signatures_by_key)
        self._signatures[uid] = (spec, labels, resize_state, signature)
        return signature

    def _forget(self, uid: str, now: datetime) -> None:
        """Forget a pod that is gone, ended, or not this scheduler's; its room is free."""
        known = self._signatures.pop(uid, None)
        was_on_node, was_nominated = bool(self._cache.node_of(uid)), bool(self._cache.nominated_node(uid))
        self._queue.remove(uid)
        self._assumed.pop(uid, None)
        self._cache.remove_pod(uid)
        self._cache.remove_nomination(uid)
        if known is None:
            return
        if was_on_node:
            self._queue.move(queueing_hints.after_pod_removed(known[3], self._cache.namespaces), now)
        elif was_nominated:
            self._move_after_nomination(known[3], now)

    # Scheduling and binding

    def _schedule(self, pod: QueuedPod, now: datetime) -> timedelta:
        """Assume the pod on its best node, and bind it unless its volumes must be bound first.

        Returns how long the attempt takes; binding is not waited for.
        """
        cycle = self._cycle(pod.signature)
        node = cycle.select_node(pod.uid)
        if node is None:
            return self._handle_failure(pod, cycle, now)
        self._queue.remove(pod.uid)
        self._cache.remove_nomination(pod.uid)
        self._cache.add_pod(node.name, PodInfo(pod.uid, pod.signature))
        unbound = self._volumes.unbound_claims(pod.signature)
        if not unbound:
            self._bind(pod, node.name)
            return ATTEMPT
        for claim in unbound:
            self._set_selected_node(claim, node.name)
        self._assumed[pod.uid] = (pod, node.name)
        # NominatedNodeNameForExpectation, on since 1.35: a pod that waits for its volumes says where it will run.
        self._set_nominated_node(pod.pod, node.name)
        return ATTEMPT

    def _cycle(self, signature: PodSignature) -> SchedulingCycle:
        cycle = self._cycles.get(signature.key)
        if cycle is None:
            cycle = self._cycles[signature.key] = SchedulingCycle(
                signature,
                self._cache,
                self._volumes,
                self._workloads.default_selectors(signature),
                search=self._search,
                rng=self._rng,
            )
        return cycle

    def _forget_unused_cycles(self) -> None:
        """Forget the signatures that no pending pod has."""
        for key in [key for key in self._cycles if not self._queue.has_signature(key)]:
            del self._cycles[key]

    def _bind_assumed(self, now: datetime) -> None:
        """Bind the assumed pods whose claims are bound; queue those again whose node is gone or no longer feasible."""
        for uid, (pod, node) in list(self._assumed.items()):
            node_info = self._cache.nodes.get(node)
            infeasible = node_info is None or bool(self._volumes.pre_filter(pod.signature))
            if node_info is not None and not infeasible:
                claims = [self._volumes.claims[pod.signature.namespace, name] for name in pod.signature.claims]
                self._cache.remove_pod(uid)
                infeasible = bool(self._volumes.filter(pod.signature, node_info))
                self._cache.add_pod(node, PodInfo(uid, pod.signature))
                if not infeasible and not all(is_bound(claim) for claim in claims):
                    continue
            del self._assumed[uid]
            if infeasible:
                self._cache.remove_pod(uid)
                self._queue.add(QueuedPod(pod.pod, pod.signature, now, message=pod.message))
                self._set_nominated_node(pod.pod, "")
                self._queue.move(queueing_hints.after_pod_removed(pod.signature, self._cache.namespaces), now)
            else:
                self._bind(pod, node)

    def _bind(self, pod: QueuedPod, node: str) -> None:
        meta = pod.pod["metadata"]
        try:
            self._store.bind(meta["namespace"], meta["name"], node)
        except ApiError as error:
            if error.status not in {CONFLICT, NOT_FOUND}:
                raise
            # Deleted, or bound by someone else: the next change of the pod tells which.
            self._cache.remove_pod(pod.uid)
            return
        self._wrote = True

    def _set_selected_node(self, claim: Obj, node: str) -> None:
        """Annotate the claim with the node for which its volume must be provisioned."""

        def select(latest: Obj) -> Obj:
            meta = latest["metadata"]
            annotations = {**(meta.get("annotations") or {}), SELECTED_NODE: node}
            return {**latest, "metadata": {**meta, "annotations": annotations}}

        update(self._store, kinds.PERSISTENT_VOLUME_CLAIMS, claim, select)
        self._wrote = True

    # Unschedulable pods

    def _handle_failure(self, pod: QueuedPod, cycle: SchedulingCycle, now: datetime) -> timedelta:
        """Queue the pod as unschedulable, clear its nomination, and report why. Returns how long the attempt takes.

        kube-scheduler clears the nomination because preemption found no candidate; a pod that may not preempt keeps it.
        """
        can_preempt = pod.pod["spec"].get("preemptionPolicy") != "Never"
        self._queue.add_unschedulable(pod, cycle.rejected_by(), now)
        clears = bool(self._cache.nominated_node(pod.uid)) and (can_preempt or not self._cache.nodes)
        if clears:
            self._cache.remove_nomination(pod.uid)
        message = cycle.fit_error(can_preempt=can_preempt)
        duration = ATTEMPT + STATUS_PATCH if clears or message != pod.fit_error else ATTEMPT
        pod.fit_error = message
        if message == pod.message or not self._is_report_due(pod, now):
            if clears:
                self._set_nominated_node(pod.pod, "")
            return duration
        pod.message, pod.reported_at = message, now
        self._set_unscheduled(pod.pod, "Unschedulable", message, now, clear_nomination=clears)
        record_event(
            self._store, pod.pod, reason="FailedScheduling", message=message, now=now, component=NAME, warning=True
        )
        return duration

    def _is_report_due(self, pod: QueuedPod, now: datetime) -> bool:
        """Whether the pod gets its message: a new pod at once, one that has a message once per interval."""
        return not pod.message or now - pod.reported_at >= REPORT_INTERVAL

    def _set_unscheduled(
        self, pod: Obj, reason: str, message: str, now: datetime, *, clear_nomination: bool = False
    ) -> None:
        """Set PodScheduled=False with this reason."""

        def unscheduled(latest: Obj) -> Obj:
            status = latest["status"]
            conditions = with_condition(
                status.get("conditions") or [], "PodScheduled", status="False", reason=reason, message=message, now=now
            )
            changed = {**latest, "status": {**status, "conditions": conditions}}
            return _with_nominated_node(changed, "") if clear_nomination else changed

        self._wrote = update(self._store, kinds.PODS, pod, unscheduled) is not None or self._wrote

    def _set_nominated_node(self, pod: Obj, node: str) -> None:
        update(self._store, kinds.PODS, pod, lambda latest: _with_nominated_node(latest, node))
        self._wrote = True


def _resize_state(pod: Obj) -> object:
    """What a pod's requests depend on besides its spec: what its containers have, and whether a resize is possible."""
    statuses = [*(pod["status"].get("containerStatuses") or ()), *(pod["status"].get("initContainerStatuses") or ())]
    resources = [(s["name"], s.get("allocatedResources"), s["resources"]) for s in statuses if s.get("resources")]
    if not resources:
        return None
    return resources, [c.get("reason") for c in pod["status"].get("conditions") or () if c["type"] == RESIZE_PENDING]


def _with_nominated_node(pod: Obj, node: str) -> Obj:
    status = {name: value for name, value in pod["status"].items() if name != "nominatedNodeName"}
    if node:
        status["nominatedNodeName"] = node
    return {**pod, "status": status}
