"""The pods that workloads own, counted as they change, and how a workload creates a pod.

A workload's controller needs the numbers of its pods at every change, so they are kept instead of counted again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local.kubernetes import kinds
from local.kubernetes.conditions import condition_status
from local.kubernetes.informer import Informer
from local.kubernetes.object_updates import create
from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Change, Obj
    from local.kubernetes.registry.store import Store

ENDED = frozenset({"Succeeded", "Failed"})
"""Phases of pods whose containers have ended for good."""


def controller_of(obj: Obj) -> Obj | None:
    """The owner reference of the object's controller."""
    owners = obj["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def controller_reference(kind: Kind, owner: Obj) -> Obj:
    """The owner reference in objects that the owner controls."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_ready(pod: Obj) -> bool:
    """Whether the pod's Ready condition is True."""
    return condition_status(pod, "Ready") == "True"


def is_terminating(obj: Obj) -> bool:
    """Whether the object is being deleted."""
    return "deletionTimestamp" in obj["metadata"]


class OwnedPods(MutableStruct):
    """The pods of one owner by uid. Active pods are neither ended nor terminating; ``ready`` are active ones."""

    active: dict[str, Obj] = {}
    ready: set[str] = set()
    ended: dict[str, Obj] = {}
    terminating: dict[str, Obj] = {}


class PodsByOwner:
    """The pods of all owners of one kind."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind.kind
        self._owners: dict[str, OwnedPods] = {}

    def of(self, uid: str) -> OwnedPods:
        """The pods of that owner."""
        return self._owners.get(uid) or OwnedPods()

    def update(self, change: Change) -> str:
        """Take in a change of a pod. Returns its owner's uid, "" for an owner of another kind."""
        pod = change.object
        owner = controller_of(pod)
        if owner is None or owner["kind"] != self._kind:
            return ""
        uid: str = pod["metadata"]["uid"]
        owned = self._owners.setdefault(owner["uid"], OwnedPods())
        for pods in (owned.active, owned.ended, owned.terminating):
            pods.pop(uid, None)
        owned.ready.discard(uid)
        if change.type != "DELETED":
            _add(owned, uid, pod)
        elif not (owned.active or owned.ended or owned.terminating):
            del self._owners[owner["uid"]]
        return str(owner["uid"])


class Workloads:
    """The objects of a kind that own pods, with their pods, as they change."""

    def __init__(self, store: Store, kind: Kind) -> None:
        self._informer = Informer(store, kind, kinds.PODS)
        self._objects: dict[str, Obj] = {}
        self.pods = PodsByOwner(kind)

    def get(self, uid: str) -> Obj | None:
        """The present object."""
        return self._objects.get(uid)

    def pop_changed(self) -> dict[str, None]:
        """The uids of the objects that changed, or whose pods did, since the last call, in the order of changes."""
        changed: dict[str, None] = {}
        for change in self._informer.pop_changes():
            if change.kind.plural == "pods":
                changed[self.pods.update(change)] = None
                continue
            uid = change.object["metadata"]["uid"]
            changed[uid] = None
            if change.type == "DELETED":
                self._objects.pop(uid, None)
            else:
                self._objects[uid] = change.object
        return changed


def _add(owned: OwnedPods, uid: str, pod: Obj) -> None:
    if pod["status"].get("phase") in ENDED:
        owned.ended[uid] = pod
    elif is_terminating(pod):
        owned.terminating[uid] = pod
    else:
        owned.active[uid] = pod
        if is_ready(pod):
            owned.ready.add(uid)


def create_pod(
    store: Store,
    kind: Kind,
    owner: Obj,
    *,
    name: str,
    template: Obj | None = None,
    labels: dict[str, str] | None = None,
    spec: dict[str, Any] | None = None,
) -> Obj | None:
    """Create a pod from the owner's template, or from the given one; None when the API refuses it."""
    template = template or owner["spec"]["template"]
    meta = template.get("metadata") or {}
    pod = {
        "metadata": {
            "name": name,
            "labels": {**(meta.get("labels") or {}), **(labels or {})},
            "annotations": meta.get("annotations") or {},
            "ownerReferences": [controller_reference(kind, owner)],
        },
        "spec": {**template["spec"], **(spec or {})},
    }
    return create(store, kinds.PODS, pod, owner["metadata"]["namespace"])
