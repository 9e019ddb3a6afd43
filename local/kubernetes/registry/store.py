"""The objects of a cluster under kube-apiserver's rules, without HTTP.

Controllers and kubelets use the store directly, other clients use it through the server. The rules are the same:
those of ``standard_storage`` for each object, the garbage collector's for dependents, and budgets for evictions.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from local.kubernetes import kinds
from local.kubernetes.registry import evictions, garbage_collector, pod_strategy
from local.kubernetes.registry.pod_disruption_budgets import PodDisruptionBudgets
from local.kubernetes.registry.standard_storage import StandardStorage
from local.kubernetes.registry.watch_cache import HISTORY_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Change, Obj


class Store(StandardStorage):
    """A cluster's objects. Methods can be called from any thread."""

    def __init__(
        self, *, now: Callable[[], datetime], rng: random.Random | None = None, history: int = HISTORY_SIZE
    ) -> None:
        """``rng`` generates uids and names; ``history`` is the number of changes that are kept for each resource."""
        super().__init__(now, history, rng or random.Random())  # noqa: S311 (names and uids of a simulated cluster, no secrets)
        self._budgets = PodDisruptionBudgets(self)
        for name, value in (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)):
            self.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        for name in ("default", "kube-node-lease", "kube-public", "kube-system"):
            self.create(kinds.NAMESPACES, {"metadata": {"name": name}})

    def bind(self, namespace: str, name: str, node: str) -> Obj:
        """Bind the pod to the node, as the binding subresource does: sets ``spec.nodeName`` and PodScheduled.

        Raises:
            ApiError: 404; 409 it has a node or scheduling gates, or is being deleted.
        """
        with self.lock:
            pod = self._existing(kinds.PODS, (namespace, name))
            return self._write(kinds.PODS, "MODIFIED", pod_strategy.bound(pod, node, self.now()), pod)

    def evict(self, namespace: str, name: str, *, options: Mapping[str, Any] | None = None) -> None:
        """Evict the pod, as the eviction subresource does; ``options`` are its ``deleteOptions``.

        Raises:
            ApiError: 404; 409 a precondition fails; 429 a budget does not allow it; 500 several budgets cover the pod.
        """
        with self.lock:
            evictions.evict(self, namespace, name, options)

    def collect_garbage(self) -> bool:
        """Delete objects whose owners don't exist. True if anything was done."""
        with self.lock:
            return garbage_collector.collect(self)

    def _after_deletion_began(self, kind: Kind, obj: Obj) -> None:
        garbage_collector.after_deletion_began(self, kind, obj)

    def _after_removal(self, kind: Kind, removed: Obj) -> None:
        garbage_collector.after_removal(self, kind, removed)

    def _after_change(self, change: Change) -> None:
        super()._after_change(change)
        self._budgets.update(change)
