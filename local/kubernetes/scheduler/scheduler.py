"""The scheduler: binds pending pods to their best nodes, or reports why no node is feasible.

It has kube-scheduler's rules and messages (docs/facts/kubernetes.md) and shares no placement code with Tenon, so
Tenon's plans are checked by it. An unschedulable pod is tried again as soon as something changes that may make a node
feasible for its signature.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from local.kubernetes import kinds
from local.kubernetes.conditions import with_condition
from local.kubernetes.conversion import convert
from local.kubernetes.errors import CONFLICT, NOT_FOUND, ApiError
from local.kubernetes.informer import Informer
from local.kubernetes.object_updates import record_event, update
from local.kubernetes.scheduler.cache import Cache
from local.kubernetes.scheduler.node_info import PodInfo
from local.kubernetes.scheduler.pod_signature import PodSignature, signature_of
from local.kubernetes.scheduler.scheduling_cycle import SchedulingCycle
from local.kubernetes.scheduler.scheduling_queue import QueuedPod, SchedulingQueue, SignatureQueue, in_order
from local.kubernetes.scheduler.volume_plugins import SELECTED_NODE, VolumeBinder, is_bound
from shared.api.kubernetes import Node, Pod
from shared.api.quantity import QuantityError

if TYPE_CHECKING:
    from local.kubernetes.objects import Change, Obj
    from local.kubernetes.registry.store import Store

NAME = "default-scheduler"
REPORT_INTERVAL = timedelta(minutes=1)
"""A pending pod gets a changed message at most this often."""

_VOLUME_KINDS = frozenset({"persistentvolumeclaims", "persistentvolumes", "storageclasses", "csinodes"})
_ENDED = frozenset({"Succeeded", "Failed"})


class Scheduler:
    """One step takes in all changes and schedules all pods that can be scheduled, highest priority and oldest first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._informer = Informer(
            store,
            kinds.NAMESPACES,
            kinds.NODES,
            kinds.STORAGE_CLASSES,
            kinds.PERSISTENT_VOLUMES,
            kinds.PERSISTENT_VOLUME_CLAIMS,
            kinds.CSI_NODES,
            kinds.PODS,
        )
        self._cache = Cache()
        self._volumes = VolumeBinder()
        self._queue = SchedulingQueue(lambda signature: SchedulingCycle(signature, self._cache, self._volumes))
        self._assumed: dict[str, tuple[QueuedPod, str]] = {}
        """Pods that wait on their node for their volumes, by uid."""
        self._signatures: dict[str, tuple[Obj, Obj, PodSignature]] = {}
        self._wrote = False
        self._changed = False

    def due(self) -> datetime | None:
        """Never by itself: a pod can be scheduled only after something changed."""
        return None

    def step(self, now: datetime) -> bool:
        """Schedule the pods that can be scheduled."""
        self._wrote = False
        generation = self._cache.generation
        for change in self._informer.pop_changes():
            self._handle(change, now)
        if not self._changed and self._cache.generation == generation:
            return self._wrote
        self._changed = False
        self._bind_assumed()
        self._schedule_all(now)
        self._queue.remove_empty()
        return self._wrote

    def _schedule_all(self, now: datetime) -> None:
        """Schedule pods in order while any signature has a feasible node; report the others as unschedulable."""
        # A pod that was just scheduled may make a node feasible for others, by affinity.
        while schedulable := self._queue.schedulable():
            exhausted: set[int] = set()
            for uid, queue in in_order(schedulable):
                if id(queue) not in exhausted and not self._schedule(uid, queue):
                    exhausted.add(id(queue))
                    if len(exhausted) == len(schedulable):
                        break
        for queue in self._queue.queues:
            self._report_unschedulable(queue, now)

    # Changes

    def _handle(self, change: Change, now: datetime) -> None:
        plural, obj = change.kind.plural, change.object
        deleted = change.type == "DELETED"
        if plural == "pods":
            self._handle_pod(obj, now, deleted=deleted)
        elif plural == "nodes":
            self._handle_node(obj, deleted=deleted)
        elif plural in _VOLUME_KINDS:
            self._volumes.update(plural, obj, deleted=deleted)
            self._changed = True
        else:
            self._handle_namespace(obj, deleted=deleted)

    def _handle_node(self, obj: Obj, *, deleted: bool) -> None:
        """Update a node in the cache; a malformed one gets no pods."""
        name = obj["metadata"]["name"]
        if deleted:
            self._cache.remove_node(name)
            return
        try:
            self._cache.update_node(convert(obj, Node))
        except (QuantityError, msgspec.ValidationError):
            self._cache.remove_node(name)

    def _handle_namespace(self, obj: Obj, *, deleted: bool) -> None:
        name, labels = obj["metadata"]["name"], obj["metadata"].get("labels") or {}
        before = self._cache.namespaces.pop(name, None)
        if not deleted:
            self._cache.namespaces[name] = labels
        if before != self._cache.namespaces.get(name):
            self._cache.rebuild_pod_counts()
            self._queue.reset_cycles()

    def _handle_pod(self, pod: Obj, now: datetime, *, deleted: bool) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        uid = meta["uid"]
        terminating = "deletionTimestamp" in meta
        node = spec.get("nodeName")
        ended = deleted or pod["status"].get("phase") in _ENDED
        if ended or (not node and (terminating or spec.get("schedulerName") != NAME)):
            self._forget(uid)
            return
        try:
            signature = self._signature(pod)
        except (QuantityError, msgspec.ValidationError) as error:
            self._forget(uid)
            self._set_unscheduled(pod, "SchedulerError", str(error), now)
            return
        if node:
            self._queue.remove(uid)
            self._assumed.pop(uid, None)
            self._cache.add_pod(node, PodInfo(uid, signature, terminating))
        elif gates := spec.get("schedulingGates"):
            names = " ".join(gate["name"] for gate in gates)
            message = f"Scheduling is blocked due to non-empty scheduling gates [{names}]"
            self._set_unscheduled(pod, "SchedulingGated", message, now)
        elif uid not in self._assumed:
            self._changed |= self._queue.add(uid, QueuedPod.of(pod, signature))

    def _signature(self, pod: Obj) -> PodSignature:
        """The pod's signature, computed once for each state of its spec and labels."""
        uid, spec, labels = pod["metadata"]["uid"], pod["spec"], pod["metadata"].get("labels") or {}
        known = self._signatures.get(uid)
        if known is not None and known[0] is spec and known[1] == labels:
            return known[2]
        signature = signature_of(convert(pod, Pod))
        self._signatures[uid] = (spec, labels, signature)
        return signature

    def _forget(self, uid: str) -> None:
        self._queue.remove(uid)
        self._assumed.pop(uid, None)
        self._signatures.pop(uid, None)
        self._cache.remove_pod(uid)

    # Scheduling and binding

    def _schedule(self, uid: str, queue: SignatureQueue) -> bool:
        """Assume the pod on its best node, and bind it unless its volumes must be bound first. False without a node."""
        node = queue.cycle.select_node()
        if node is None:
            return False
        pod = queue.pods[uid]
        self._queue.remove(uid)
        self._cache.add_pod(node.name, PodInfo(uid, pod.signature))
        unbound = self._volumes.unbound_claims(pod.signature)
        if unbound:
            for claim in unbound:
                self._set_selected_node(claim, node.name)
            self._assumed[uid] = (pod, node.name)
        else:
            self._bind(uid, pod, node.name)
        return True

    def _bind_assumed(self) -> None:
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
                self._changed |= self._queue.add(uid, pod)
            else:
                self._bind(uid, pod, node)

    def _bind(self, uid: str, pod: QueuedPod, node: str) -> None:
        meta = pod.pod["metadata"]
        try:
            self._store.bind(meta["namespace"], meta["name"], node)
        except ApiError as error:
            if error.status not in {CONFLICT, NOT_FOUND}:
                raise
            # Deleted, or bound by someone else: the next change of the pod tells which.
            self._cache.remove_pod(uid)
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

    def _report_unschedulable(self, queue: SignatureQueue, now: datetime) -> None:
        """Write the message to pods: to new ones at once, to others once per interval, and only if it changed."""
        report_all = queue.reported_at is None or now - queue.reported_at >= REPORT_INTERVAL
        uids = list(queue.pods) if report_all else sorted(queue.new)
        if not uids:
            return
        message = queue.cycle.fit_error()
        queue.reported_at = now if report_all else queue.reported_at
        queue.new.clear()
        for uid in uids:
            queued = queue.pods[uid]
            if message == queued.message:
                continue
            queue.pods[uid] = replace(queued, message=message)
            self._set_unscheduled(queued.pod, "Unschedulable", message, now)
            record_event(
                self._store,
                queued.pod,
                reason="FailedScheduling",
                message=message,
                now=now,
                component=NAME,
                warning=True,
            )

    def _set_unscheduled(self, pod: Obj, reason: str, message: str, now: datetime) -> None:
        """Set PodScheduled=False with this reason."""

        def unscheduled(latest: Obj) -> Obj:
            status = latest["status"]
            conditions = with_condition(
                status.get("conditions") or [], "PodScheduled", status="False", reason=reason, message=message, now=now
            )
            return {**latest, "status": {**status, "conditions": conditions}}

        self._wrote = update(self._store, kinds.PODS, pod, unscheduled) is not None or self._wrote
