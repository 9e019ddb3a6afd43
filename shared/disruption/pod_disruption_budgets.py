"""PodDisruptionBudgets: which pods can't be evicted now, and how many of a budget's pods may move together.

The API server enforces them at each eviction. Here they keep nodes from being chosen whose drain would be stuck.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.meta import is_true
from shared.api.pods import disruptions_allowed
from shared.api.selectors import SelectorError, matches
from shared.disruption.command import Blocker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.kubernetes import Pod, PodDisruptionBudget


class PodDisruptionBudgets:
    """The PodDisruptionBudgets of a snapshot, looked up by pod."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._by_namespace: dict[str, list[PodDisruptionBudget]] = {}
        for budget in budgets:
            self._by_namespace.setdefault(budget.metadata.namespace or "default", []).append(budget)

    def matching(self, pod: Pod) -> list[PodDisruptionBudget]:
        """The budgets that select the pod; an invalid selector selects none, as for the eviction API."""
        budgets = self._by_namespace.get(pod.metadata.namespace or "default")
        return [b for b in budgets if _selects(b, pod)] if budgets else []

    def counting(self, pod: Pod) -> list[PodDisruptionBudget]:
        """The budgets that count the pod's eviction: those that select it, unless they let an unready pod go.

        Pods that don't run go whatever their budgets say, and unready ones while enough others are healthy. Source:
        kubernetes ``pkg/registry/core/pod/storage/eviction.go``.
        """
        if _ignores_budgets(pod):
            return []
        is_ready = is_true(pod.status.conditions, "Ready")
        return [b for b in self.matching(pod) if is_ready or not _lets_unready_pods_go(b)]

    def eviction_blocker(self, pod: Pod) -> Blocker | None:
        """Why the pod can't be evicted now; None when it can."""
        budgets = [] if _ignores_budgets(pod) else self.matching(pod)
        if len(budgets) > 1:
            message = f"pod {pod.key} matches {len(budgets)} PodDisruptionBudgets, so it can't be evicted"
            return Blocker(message=message, by=f"Pod {pod.key}")
        for budget in self.counting(pod):
            name = budget.metadata.name
            if disruptions_allowed(budget) < 1:
                is_stale = budget.status.observed_generation < budget.metadata.generation
                why = ", as its last change isn't evaluated yet" if is_stale else ""
                message = f"PodDisruptionBudget {name} blocks the eviction of pod {pod.key}{why}"
                return Blocker(message=message, by=f"PodDisruptionBudget {budget.metadata.namespace}/{name}")
        return None

    def allow_together(self, nodes: Iterable[Iterable[Pod]]) -> bool:
        """Whether the pods of these nodes may move at the same time.

        A budget's pods on a single node always may: its drain evicts them one after the other, as the budget allows.
        """
        pod_counts: dict[tuple[str, str], int] = {}
        node_counts: dict[tuple[str, str], int] = {}
        allowed: dict[tuple[str, str], int] = {}
        for pods in nodes:
            keys_of_node: set[tuple[str, str]] = set()
            for pod in pods:
                for budget in self.counting(pod):
                    key = budget.metadata.namespace, budget.metadata.name
                    allowed[key] = disruptions_allowed(budget)
                    pod_counts[key] = pod_counts.get(key, 0) + 1
                    keys_of_node.add(key)
            for key in keys_of_node:
                node_counts[key] = node_counts.get(key, 0) + 1
        return all(node_counts[key] == 1 or count <= allowed[key] for key, count in pod_counts.items())


def _ignores_budgets(pod: Pod) -> bool:
    """Whether the eviction API deletes the pod without looking at budgets: it doesn't run, or is being deleted."""
    return pod.status.phase in {"Pending", "Succeeded", "Failed"} or pod.metadata.deletion_timestamp is not None


def _lets_unready_pods_go(budget: PodDisruptionBudget) -> bool:
    """Whether the eviction of an unready pod takes nothing from the budget."""
    status = budget.status
    is_enough = 0 < status.desired_healthy <= status.current_healthy
    return is_enough or budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"


def _selects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    try:
        return matches(budget.spec.selector, pod.metadata.labels)
    except SelectorError:
        return False
