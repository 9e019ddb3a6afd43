"""The eviction subresource of pods: whether their PodDisruptionBudgets allow it, and what becomes of the pod.

Source: kubernetes ``pkg/registry/core/pod/storage/eviction.go``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local.kubernetes import errors, kinds, selectors
from local.kubernetes.conditions import condition_status, replace_condition
from local.kubernetes.objects import timestamp
from local.kubernetes.registry.deletion import check_preconditions
from local.kubernetes.registry.pod_disruption_budgets import with_disruption_allowed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.standard_storage import StandardStorage

_SECONDS_TO_OBSERVE = 10
_BLOCKED = "Cannot evict pod as it would violate the pod's disruption budget."


def evict(storage: StandardStorage, namespace: str, name: str, options: Mapping[str, Any] | None) -> None:
    """Evict the pod.

    Raises:
        ApiError: 403 the namespace is being deleted; 404; 409 a precondition fails; 429 a budget does not allow it; 500
            several budgets cover the pod.
    """
    if "deletionTimestamp" in storage.get(kinds.NAMESPACES, namespace)["metadata"]:
        raise errors.namespace_terminating(kinds.PODS, name, namespace)
    options = options or {}
    dry_run, preconditions = bool(options.get("dryRun")), options.get("preconditions")
    pod = storage.get(kinds.PODS, name, namespace=namespace)
    if not _ignores_budgets(pod):
        _use_budget(storage, pod, dry_run=dry_run)
    check_preconditions(kinds.PODS, pod, preconditions)
    if not dry_run:
        pod = storage.write(kinds.PODS, _disrupted(pod, storage.now()), pod)
    storage.delete(
        kinds.PODS, name, namespace=namespace, grace_period_seconds=options.get("gracePeriodSeconds"), dry_run=dry_run
    )


def _disrupted(pod: Obj, now: datetime) -> Obj:
    """The pod with the condition by which its owner knows that it was evicted."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": timestamp(now),
    }
    if condition_status(pod, "DisruptionTarget") == "True":
        return pod
    status = pod.get("status") or {}
    return {**pod, "status": {**status, "conditions": replace_condition(status.get("conditions") or [], condition)}}


def _ignores_budgets(pod: Obj) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in {"Succeeded", "Failed", "Pending"} or "deletionTimestamp" in pod["metadata"]


def _use_budget(storage: StandardStorage, pod: Obj, *, dry_run: bool) -> None:
    """Count the eviction in the pod's budget, if it has one.

    Raises:
        ApiError: 429, the budget doesn't allow it; 500, the pod has several budgets.
    """
    budgets = storage.list(kinds.POD_DISRUPTION_BUDGETS, namespace=pod["metadata"]["namespace"])
    covering = [budget for budget in budgets if _covers(budget, pod)]
    if len(covering) > 1:
        text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise errors.ApiError(500, "", text)
    if not covering or _is_spare(covering[0], pod):
        return
    budget = covering[0]
    _check(budget)
    if not dry_run:
        storage.write(kinds.POD_DISRUPTION_BUDGETS, _decremented(budget, pod, storage.now()), budget)


def _covers(budget: Obj, pod: Obj) -> bool:
    """Whether the budget's selector selects the pod; none or an invalid one selects no pods, an empty one all."""
    try:
        selector = selectors.parse_label_selector((budget.get("spec") or {}).get("selector"))
    except errors.ApiError:
        return False
    return selector is not None and selectors.matches(selector, pod["metadata"].get("labels") or {})


def _is_spare(budget: Obj, pod: Obj) -> bool:
    """Whether the pod isn't healthy, and its eviction takes nothing from the budget."""
    if condition_status(pod, "Ready") == "True":
        return False
    status = budget.get("status") or {}
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    desired: int = status.get("desiredHealthy", 0)
    return desired > 0 and status.get("currentHealthy", 0) >= desired


def _check(budget: Obj) -> None:
    """Raise 429 unless the budget allows a disruption."""
    status, name = budget.get("status") or {}, budget["metadata"]["name"]
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        text = f"The disruption budget {name} is still being processed by the server."
        cause = errors.Cause("", "DisruptionBudget", text)
        raise errors.too_many_requests(_BLOCKED, causes=[cause], retry_after=_SECONDS_TO_OBSERVE)
    if status.get("disruptionsAllowed", 0) > 0:
        return
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    text = f"The disruption budget {name} does not allow evicting pods currently"
    if healthy <= desired:
        text = f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    raise errors.too_many_requests(_BLOCKED, causes=[errors.Cause("", "DisruptionBudget", text)])


def _decremented(budget: Obj, pod: Obj, now: datetime) -> Obj:
    """The budget with one disruption less, until its controller sees that the pod is being deleted."""
    status = dict(budget["status"])
    status["disruptionsAllowed"] -= 1
    status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: timestamp(now)}
    if status["disruptionsAllowed"] == 0:
        status["conditions"] = with_disruption_allowed(status, now)
    return {**budget, "status": status}
