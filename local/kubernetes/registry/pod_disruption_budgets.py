"""PodDisruptionBudgets: their status, and whether an eviction is allowed.

The status is computed as by the disruption controller (kubernetes ``pkg/controller/disruption``), evictions are checked
as by the eviction subresource (``pkg/registry/core/pod/storage/eviction.go``). Pods are counted as they change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from local.kubernetes import errors, kinds, selectors
from local.kubernetes.conditions import condition_status, replace_condition
from local.kubernetes.objects import timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local.kubernetes.objects import Change, Key, Obj
    from local.kubernetes.registry.standard_storage import StandardStorage

_SCALABLE_OWNERS = {
    kind.kind: kind for kind in (kinds.REPLICA_SETS, kinds.STATEFUL_SETS, kinds.REPLICATION_CONTROLLERS)
}
_WITH_REPLICAS = frozenset(kind.resource for kind in (*_SCALABLE_OWNERS.values(), kinds.DEPLOYMENTS))
_EVICTION_BLOCKED = "Cannot evict pod as it would violate the pod's disruption budget."


@dataclass(slots=True)
class _Budget:
    """One budget's selector and its pods: whether each is healthy, and its controller's kind and name."""

    selector: selectors.Selector | None
    healthy: dict[Key, bool] = field(default_factory=dict)
    controllers: dict[Key, tuple[str, str] | None] = field(default_factory=dict)

    def covers(self, pod: Obj) -> bool:
        labels = pod["metadata"].get("labels") or {}
        return self.selector is not None and selectors.matches(self.selector, labels)

    def count(self, key: Key, pod: Obj) -> None:
        self.healthy[key] = condition_status(pod, "Ready") == "True" and "deletionTimestamp" not in pod["metadata"]
        owners = pod["metadata"].get("ownerReferences") or []
        owner = next((o for o in owners if o.get("controller")), None)
        self.controllers[key] = (owner["kind"], owner["name"]) if owner else None

    def remove(self, key: Key) -> bool:
        self.controllers.pop(key, None)
        return self.healthy.pop(key, None) is not None


class PodDisruptionBudgets:
    """Keeps the status of all budgets and carries out evictions. The store calls it with its lock held."""

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
        healthy = sum(budget.healthy.values())
        desired, expected = self._desired(namespace, obj.get("spec") or {}, budget)
        allowed = max(healthy - desired, 0) if expected > 0 else 0
        numbers = {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": allowed,
            "expectedPods": expected,
            "observedGeneration": obj["metadata"]["generation"],
        }
        before = obj.get("status") or {}
        if {name: before.get(name) for name in numbers} == numbers:
            return
        condition = {
            "type": "DisruptionAllowed",
            "status": "True" if allowed else "False",
            "reason": "SufficientPods" if allowed else "InsufficientPods",
            "message": "",
            "observedGeneration": numbers["observedGeneration"],
            "lastTransitionTime": timestamp(self._storage.now()),
        }
        status = {**before, **numbers, "conditions": replace_condition(before.get("conditions") or [], condition)}
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

    def evict(self, namespace: str, name: str, options: Mapping[str, Any] | None) -> None:
        """Evict the pod as the eviction subresource does.

        Raises:
            ApiError: 404; 409 a precondition fails; 429 a budget does not allow it; 500 several budgets cover the pod.
        """
        storage = self._storage
        pod = storage.get(kinds.PODS, name, namespace=namespace)
        budgets = [name for name, budget in self._budgets.get(namespace, {}).items() if budget.covers(pod)]
        if not _ignores_budgets(pod) and budgets:
            if len(budgets) > 1:
                raise errors.internal(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
                )
            _check(storage.get(kinds.POD_DISRUPTION_BUDGETS, budgets[0], namespace=namespace), pod)
        options = options or {}
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastTransitionTime": timestamp(storage.now()),
        }
        storage.check_preconditions(kinds.PODS, pod, options.get("preconditions"))
        if options.get("dryRun"):
            return
        if condition_status(pod, "DisruptionTarget") != "True":
            conditions = replace_condition(pod["status"].get("conditions") or [], condition)
            status = {**pod["status"], "conditions": conditions}
            pod = storage.write(kinds.PODS, {**pod, "status": status}, pod)
        storage.delete(kinds.PODS, name, namespace=namespace, grace_period_seconds=options.get("gracePeriodSeconds"))


def _ignores_budgets(pod: Obj) -> bool:
    phase = pod["status"].get("phase")
    return phase in {"Succeeded", "Failed", "Pending"} or "deletionTimestamp" in pod["metadata"]


def _check(budget: Obj, pod: Obj) -> None:
    """Raise 429 unless the budget allows the eviction."""
    status = budget.get("status") or {}
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if condition_status(pod, "Ready") != "True":
        always_allow = (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        if always_allow or (desired > 0 and healthy >= desired):
            return
    if status.get("disruptionsAllowed", 0) > 0:
        return
    name = budget["metadata"]["name"]
    text = f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    raise errors.too_many_requests(_EVICTION_BLOCKED, causes=[errors.Cause("", "DisruptionBudget", text)])


def _replicas(obj: Obj | None) -> int:
    count: int = ((obj or {}).get("spec") or {}).get("replicas", 1)
    return count


def _scaled_value(value: str | int, total: int) -> int:
    """A number, or a percentage of ``total`` rounded up, as the disruption controller rounds both of its fields."""
    return value if isinstance(value, int) else -(-int(value.rstrip("%")) * total // 100)
