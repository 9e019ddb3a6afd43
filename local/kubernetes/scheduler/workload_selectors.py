"""The pods that belong together by their workload and Services: what kube-scheduler's default constraints spread.

Source: ``pkg/scheduler/framework/plugins/helper/spread.go``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes.conversion import convert
from local.kubernetes.scheduler.pod_counts import PodSelector
from shared.api.meta import LabelSelector

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj
    from local.kubernetes.scheduler.pod_signature import PodSignature


class WorkloadSelectors:
    """The selectors of ReplicaSets, StatefulSets, ReplicationControllers and Services."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str, str], LabelSelector] = {}
        """By kind, namespace and name."""
        self._services: dict[str, dict[str, dict[str, str]]] = {}
        """By namespace and name."""

    def update(self, obj: Obj, *, deleted: bool) -> bool:
        """Update an object of one of the four kinds. True if the pods that Services select changed."""
        kind, namespace, name = obj["kind"], obj["metadata"]["namespace"], obj["metadata"]["name"]
        selector = (obj.get("spec") or {}).get("selector") or {}
        if kind == "Service":
            services = self._services.setdefault(namespace, {})
            before = services.pop(name, {})
            if selector and not deleted:
                services[name] = selector
            return before != services.get(name, {})
        if deleted:
            self._owners.pop((kind, namespace, name), None)
        elif (kind, namespace, name) not in self._owners:
            if kind == "ReplicationController":
                selector = {"matchLabels": selector}
            self._owners[kind, namespace, name] = convert(selector, LabelSelector)
        return False

    def default_selectors(self, signature: PodSignature) -> tuple[PodSelector, ...]:
        """The selectors that together select the pods to be spread; empty: the default constraints don't apply."""
        namespace = frozenset([signature.namespace])
        services = [
            PodSelector(namespace, LabelSelector(match_labels=labels))
            for labels in self._services.get(signature.namespace, {}).values()
        ]
        selectors = [service for service in services if service.selects(signature.namespace, signature.labels)]
        if signature.owner is not None:
            kind, name = signature.owner
            selector = self._owners.get((kind, signature.namespace, name))
            if selector is not None:
                selectors.append(PodSelector(namespace, selector))
        return tuple(selectors)
