"""The pods that workloads own, counted as they change, and how a workload makes a pod.

Workload controllers ask how many of their pods there are and are ready at every change; these answers are kept, not
counted anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from local.kubernetes import kinds
from local.kubernetes.controllers.object_updates import condition_status
from local.kubernetes.errors import ApiError

if TYPE_CHECKING:
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Change, Obj
    from local.kubernetes.registry.store import Store

_ENDED = frozenset({"Succeeded", "Failed"})
FORBIDDEN, NOT_FOUND, CONFLICT = 403, 404, 409


def controller_of(obj: Obj) -> Obj | None:
    """The owner reference that controls the object."""
    owners = obj["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def reference(kind: Kind, owner: Obj) -> Obj:
    """The owner reference of what the owner makes."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_ready(pod: Obj) -> bool:
    """Whether the pod says Ready."""
    return condition_status(pod, "Ready") == "True"


@dataclass(eq=False)
class Family:
    """The pods of one owner, by uid: active (neither ended nor being deleted), ready ones of them, ended, leaving."""

    active: dict[str, Obj] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    ended: dict[str, Obj] = field(default_factory=dict)
    leaving: dict[str, Obj] = field(default_factory=dict)


class Families:
    """The pods of all owners of one kind."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind.kind
        self._families: dict[str, Family] = {}

    def of(self, uid: str) -> Family:
        """The pods of that owner."""
        return self._families.get(uid) or Family()

    def learn(self, change: Change) -> str:
        """Take one change of a pod. Returns the uid of the owner it concerns, "" for none of this kind."""
        pod = change.object
        owner = controller_of(pod)
        if owner is None or owner["kind"] != self._kind:
            return ""
        uid: str = pod["metadata"]["uid"]
        family = self._families.setdefault(owner["uid"], Family())
        for kept in (family.active, family.ended, family.leaving):
            kept.pop(uid, None)
        family.ready.discard(uid)
        if change.type != "DELETED":
            if pod["status"].get("phase") in _ENDED:
                family.ended[uid] = pod
            elif "deletionTimestamp" in pod["metadata"]:
                family.leaving[uid] = pod
            else:
                family.active[uid] = pod
                if is_ready(pod):
                    family.ready.add(uid)
        elif not (family.active or family.ended or family.leaving):
            del self._families[owner["uid"]]
        return str(owner["uid"])


def make(store: Store, kind: Kind, obj: Obj, namespace: str) -> Obj | None:
    """Create the object; None when the API refuses it (a namespace that goes, a name that is taken)."""
    try:
        return store.create(kind, obj, namespace=namespace)
    except ApiError as error:
        if error.status not in {FORBIDDEN, NOT_FOUND, CONFLICT}:
            raise
        return None


def make_pod(
    store: Store,
    kind: Kind,
    owner: Obj,
    *,
    name: str,
    template: Obj | None = None,
    labels: dict[str, str] | None = None,
    spec: dict[str, Any] | None = None,
) -> Obj | None:
    """Make a pod of the owner's template, or of the one given; None when the API refuses it."""
    template = template or owner["spec"]["template"]
    meta = template.get("metadata") or {}
    pod = {
        "metadata": {
            "name": name,
            "labels": {**(meta.get("labels") or {}), **(labels or {})},
            "annotations": meta.get("annotations") or {},
            "ownerReferences": [reference(kind, owner)],
        },
        "spec": {**template["spec"], **(spec or {})},
    }
    return make(store, kinds.PODS, pod, owner["metadata"]["namespace"])
