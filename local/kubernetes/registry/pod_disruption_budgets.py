"""The status of PodDisruptionBudgets, as the disruption controller computes it (``pkg/controller/disruption``).

Pods are counted as they change. Evictions only read the status: ``evictions``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from local.kubernetes import kinds, selectors
from local.kubernetes.conditions import condition_status, replace_condition
from local.kubernetes.objects import parse_timestamp, timestamp
from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from datetime import datetime

    from local.kubernetes.objects import Change, Key, Obj
    from local.kubernetes.registry.standard_storage import StandardStorage

_SCALABLE_OWNERS = {
    kind.kind: kind for kind in (kinds.REPLICA_SETS, kinds.STATEFUL_SETS, kinds.REPLICATION_CONTROLLERS)
}
_WITH_REPLICAS = frozenset(kind.resource for kind in (*_SCALABLE_OWNERS.values(), kinds.DEPLOYMENTS))
_DISRUPTION_ALLOWED = "DisruptionAllowed"
_TIME_TO_DELETE = timedelta(minutes=2)
"""How long an evicted pod counts as disrupted while it isn't being deleted."""


class _Budget(MutableStruct):
    """One budget's selector and its pods: whether each is healthy, and its controller's kind and name."""

    selector: selectors.Selector | None
    healthy: dict[Key, bool] = {}
    controllers: dict[Key, tuple[str, str] | None] = {}
    terminating: set[Key] = set()

    def covers(self, pod: Obj) -> bool:
        labels = pod["metadata"].get("labels") or {}
        return self.selector is not None and selectors.matches(self.selector, labels)

    def count(self, key: Key, pod: Obj) -> None:
        if "deletionTimestamp" in pod["metadata"]:
            self.terminating.add(key)
        self.healthy[key] = condition_status(pod, "Ready") == "True" and key not in self.terminating
        owners = pod["metadata"].get("ownerReferences") or []
        owner = next((o for o in owners if o.get("controller")), None)
        self.controllers[key] = (owner["kind"], owner["name"]) if owner else None

    def disrupted(self, namespace: str, evicted: dict[str, str], now: datetime) -> dict[str, str]:
        """The evicted pods, with the times of their evictions, that aren't being deleted yet and soon will be."""
        return {
            name: time
            for name, time in evicted.items()
            if (namespace, name) in self.healthy.keys() - self.terminating
            and now - parse_timestamp(time) <= _TIME_TO_DELETE
        }

    def remove(self, key: Key) -> bool:
        self.terminating.discard(key)
        self.controllers.pop(key, None)
        return self.healthy.pop(key, None) is not None


class PodDisruptionBudgets:
    """Keeps the status of all budgets. The store calls it with its lock held."""

    def __init__(self, storage: StandardStorage) -> None:
        self._storage = storage
        self._budgets: dict[str, dict[str, _Budget]] = {}

    def update(self, change: Change) -> None:
        """Take in a change of a pod, a budget or a workload's replicas."""
        resource = change.kind.resource
        namespace = change.object["metadata"].get("namespace", "")
        if resource == kinds.POD_DISRUPTION_BUDGETS.resource:
            self._update_budget(change)
        elif resource == kinds.PODS.resource and namespace in self._budgets:
            self._update_pod(change, namespace)
        elif (
            resource in _WITH_REPLICAS
            and namespace in self._budgets
            and _replicas(change.object) != _replicas(change.previous)
        ):
            for name in list(self._budgets[namespace]):
                self._update_status(namespace, name)

    def _update_budget(self, change: Change) -> None:
        metadata = change.object["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        if change.type == "DELETED":
            self._budgets.get(namespace, {}).pop(name, None)
            if not self._budgets.get(namespace):
                self._budgets.pop(namespace, None)
            return
        if change.previous is not None and change.previous.get("spec") == change.object.get("spec"):
            return
        budget = _Budget(selectors.parse_label_selector((change.object.get("spec") or {}).get("selector")))
        for pod in self._storage.list(kinds.PODS, namespace=namespace):
            if budget.covers(pod):
                budget.count((namespace, pod["metadata"]["name"]), pod)
        self._budgets.setdefault(namespace, {})[name] = budget
        self._update_status(namespace, name)

    def _update_pod(self, change: Change, namespace: str) -> None:
        key = (namespace, change.object["metadata"]["name"])
        for name, budget in list(self._budgets[namespace].items()):
            if change.type != "DELETED" and budget.covers(change.object):
                budget.count(key, change.object)
            elif not budget.remove(key):
                continue
            self._update_status(namespace, name)

    def _update_status(self, namespace: str, name: str) -> None:
        """Write the budget's status if it changed."""
        obj = self._storage.find(kinds.POD_DISRUPTION_BUDGETS, name, namespace=namespace)
        if obj is None:
            return
        budget = self._budgets[namespace][name]
        before = obj.get("status") or {}
        disrupted = budget.disrupted(namespace, before.get("disruptedPods") or {}, self._storage.now())
        healthy = sum(is_healthy for key, is_healthy in budget.healthy.items() if key[1] not in disrupted)
        desired, expected = self._desired(namespace, obj.get("spec") or {}, budget)
        status = {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": max(healthy - desired, 0) if expected > 0 else 0,
            "expectedPods": expected,
            "observedGeneration": obj["metadata"]["generation"],
            **({"disruptedPods": disrupted} if disrupted else {}),
        }
        status["conditions"] = with_disruption_allowed({**before, **status}, self._storage.now())
        if before != status:
            self._storage.write(kinds.POD_DISRUPTION_BUDGETS, {**obj, "status": status}, obj)

    def _desired(self, namespace: str, spec: Obj, budget: _Budget) -> tuple[int, int]:
        """The numbers of desired healthy pods and of expected pods."""
        min_available, max_unavailable = spec.get("minAvailable"), spec.get("maxUnavailable")
        if isinstance(min_available, int):
            return min_available, len(budget.healthy)
        expected = self._expected(namespace, budget)
        if min_available is not None:
            return _scaled_value(min_available, expected), expected
        if max_unavailable is not None:
            return max(expected - _scaled_value(max_unavailable, expected), 0), expected
        return 0, expected

    def _expected(self, namespace: str, budget: _Budget) -> int:
        """The replicas of the pods' controllers; pods without a controller don't count."""
        workloads: dict[str, int] = {}
        for controller in set(budget.controllers.values()) - {None}:
            kind = _SCALABLE_OWNERS.get(controller[0]) if controller else None
            if kind is None or controller is None:
                continue
            obj = self._storage.find(kind, controller[1], namespace=namespace)
            owner = next(
                (o for o in (obj or {}).get("metadata", {}).get("ownerReferences", ()) if o.get("controller")), None
            )
            if owner and owner["kind"] == kinds.DEPLOYMENTS.kind:
                obj = self._storage.find(kinds.DEPLOYMENTS, owner["name"], namespace=namespace)
            if obj is not None:
                workloads[obj["metadata"]["uid"]] = _replicas(obj)
        return sum(workloads.values())


def with_disruption_allowed(status: Obj, now: datetime) -> list[Obj]:
    """The conditions of a budget with this status, among them whether disruptions are allowed."""
    allowed = status["disruptionsAllowed"] > 0
    conditions: list[Obj] = status.get("conditions") or []
    before = next((c for c in conditions if c["type"] == _DISRUPTION_ALLOWED), {})
    value = "True" if allowed else "False"
    since = before["lastTransitionTime"] if before.get("status") == value else timestamp(now)
    condition = {
        "type": _DISRUPTION_ALLOWED,
        "status": value,
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
        "observedGeneration": status["observedGeneration"],
        "lastTransitionTime": since,
    }
    return replace_condition(conditions, condition)


def _replicas(obj: Obj | None) -> int:
    count: int = ((obj or {}).get("spec") or {}).get("replicas", 1)
    return count


def _scaled_value(value: str | int, total: int) -> int:
    """A number, or a percentage of ``total`` rounded up, as the disruption controller rounds both of its fields."""
    return value if isinstance(value, int) else -(-int(value.rstrip("%")) * total // 100)
