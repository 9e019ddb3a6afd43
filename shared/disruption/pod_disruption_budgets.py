"""What PodDisruptionBudgets leave: which pods can't be evicted now, and how many of a budget's may move together.

Eviction itself is held to them by the API server, one pod after the other; here they keep nodes from being chosen
whose drain would stand still.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.meta import is_true
from shared.api.selectors import SelectorError, matches
from shared.disruption.command import Blocker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.kubernetes import Pod, PodDisruptionBudget


class PodDisruptionBudgets:
    """The budgets of a snapshot, found by pod."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._by_namespace: dict[str, list[PodDisruptionBudget]] = {}
        for budget in budgets:
            self._by_namespace.setdefault(budget.metadata.namespace or "default", []).append(budget)

    def matching(self, pod: Pod) -> list[PodDisruptionBudget]:
        """The budgets that hold for a pod; one that can't be read holds for every pod of its namespace."""
        found = self._by_namespace.get(pod.metadata.namespace or "default")
        return [b for b in found if _holds(b, pod)] if found else []

    def eviction_blocker(self, pod: Pod) -> Blocker | None:
        """Why the pod can't be evicted now; None when it can."""
        budgets = self.matching(pod)
        if len(budgets) > 1:
            message = f"pod {pod.key} has {len(budgets)} PodDisruptionBudgets, so it can't be evicted at all"
            return Blocker(message=message, by=f"Pod {pod.key}")
        for budget in budgets:
            name = budget.metadata.name
            always = budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"
            if budget.status.disruptions_allowed < 1 and not (always and not is_true(pod.status.conditions, "Ready")):
                message = f"PodDisruptionBudget {name} lets none of its pods go now, such as {pod.key}"
                return Blocker(message=message, by=f"PodDisruptionBudget {budget.metadata.namespace}/{name}")
        return None

    def allow_together(self, nodes: Iterable[Iterable[Pod]]) -> bool:
        """Whether the pods of these nodes may move at the same time.

        A single node's may whenever each of them may: they leave one after the other, as the budget allows.
        """
        moved: dict[tuple[str, str], int] = {}
        holding: dict[tuple[str, str], int] = {}
        allowed: dict[tuple[str, str], int] = {}
        for pods in nodes:
            seen: set[tuple[str, str]] = set()
            for pod in pods:
                for budget in self.matching(pod):
                    key = budget.metadata.namespace, budget.metadata.name
                    allowed[key] = budget.status.disruptions_allowed
                    moved[key] = moved.get(key, 0) + 1
                    seen.add(key)
            for key in seen:
                holding[key] = holding.get(key, 0) + 1
        return all(holding[key] == 1 or count <= allowed[key] for key, count in moved.items())


def _holds(budget: PodDisruptionBudget, pod: Pod) -> bool:
    try:
        return matches(budget.spec.selector, pod.metadata.labels)
    except SelectorError:
        return True
