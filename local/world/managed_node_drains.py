"""EKS drains the nodes of managed node groups before their instances are terminated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.errors import NOT_FOUND, ApiError
from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store

TOO_MANY_REQUESTS = 429


class ManagedNodeDrains(MutableStruct):
    """Cordons a node and evicts its pods, as often as it is called."""

    store: Store

    def __call__(self, instance_id: str) -> bool:
        """Evict the pods of the instance's node; whether it has none left but those of DaemonSets."""
        node = next((n for n in self.store.list(kinds.NODES) if _instance_of(n) == instance_id), None)
        if node is None:
            return True
        name = node["metadata"]["name"]
        if not node["spec"].get("unschedulable"):
            self.store.patch(kinds.NODES, name, {"spec": {"unschedulable": True}})
        pods = [p for p in self.store.list(kinds.PODS) if p["spec"].get("nodeName") == name and not _stays(p)]
        for pod in pods:
            if not pod["metadata"].get("deletionTimestamp"):
                self._evict(pod)
        return not pods

    def _evict(self, pod: Obj) -> None:
        try:
            self.store.evict(pod["metadata"]["namespace"], pod["metadata"]["name"])
        except ApiError as error:
            if error.status not in (NOT_FOUND, TOO_MANY_REQUESTS):  # a budget doesn't allow it yet
                raise


def _instance_of(node: Obj) -> str:
    return str(node["spec"].get("providerID", "")).rpartition("/")[2]


def _stays(pod: Obj) -> bool:
    owners = pod["metadata"].get("ownerReferences") or []
    is_static = "kubernetes.io/config.mirror" in (pod["metadata"].get("annotations") or {})
    has_ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return is_static or has_ended or any(owner["kind"] == "DaemonSet" for owner in owners)
