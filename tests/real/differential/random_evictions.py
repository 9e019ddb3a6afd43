"""Random pods and budgets, whose evictions three judges decide: the real API, the embedded one, and Tenon.

No controller runs, so that the budgets' statuses are those that are set here: also ones that are behind.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from local.kubernetes import kinds
from local.kubernetes.conversion import convert
from local.kubernetes.errors import ApiError
from local.kubernetes.registry.object_storage import ObjectStorage
from local.kubernetes.registry.store import Store
from shared.api.kubernetes import Pod, PodDisruptionBudget
from shared.disruption.pod_disruption_budgets import PodDisruptionBudgets
from tests.real.scheduling import START

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.kubernetes.objects import Change
    from tests.real.differential.object_answers import Answer

    Ask = Callable[[str, dict[str, Any]], Answer]

Json = dict[str, Any]
Rng = random.Random

ALLOWED, TOO_MANY, SEVERAL = "allowed", "429", "500"
PODS_EACH = 40
_BUDGETS = 6
_CREATED = 201
_SELECTORS: tuple[Json, ...] = (
    {"matchLabels": {"app": "web"}}, {"matchLabels": {"app": "db"}}, {"matchLabels": {"app": "db", "tier": "x"}},
    {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, {"matchLabels": {"app": "absent"}},
    {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web", "db", "cache"]}]}, {},
)  # fmt: skip
_PHASES = ("Running", "Running", "Running", "Running", "Pending", "Succeeded", "Failed", "Unknown")


@dataclass(frozen=True)
class EvictionProblem:
    """Pods with their statuses, and budgets with theirs, in a namespace of their own."""

    namespace: str
    pods: tuple[Json, ...]
    budgets: tuple[Json, ...]


def random_problem(seed: int) -> EvictionProblem:
    """The problem of that seed."""
    rng = random.Random(seed)  # noqa: S311 - a problem of a test
    return EvictionProblem(
        f"evictions-{seed}",
        tuple(_pod(rng, f"pod-{index}") for index in range(PODS_EACH)),
        tuple(_budget(rng, f"budget-{index}") for index in range(rng.choice((1, 1, 2, 2, _BUDGETS)))),
    )


def _pod(rng: Rng, name: str) -> Json:
    labels = {"app": rng.choice(("web", "db", "cache"))} | ({"tier": "x"} if rng.random() < 0.3 else {})
    conditions = [{"type": "Ready", "status": rng.choice(("True", "True", "False", "Unknown"))}]
    status = {"phase": rng.choice(_PHASES), **({"conditions": conditions} if rng.random() < 0.8 else {})}
    metadata: Json = {"name": name, "labels": labels}
    if rng.random() < 0.1:
        metadata["finalizers"] = ["example.com/hold"]
    spec: Json = {"containers": [{"name": "main", "image": "web:1"}], "nodeName": "n1"}
    return {"metadata": metadata, "spec": spec, "status": status, "isDeleted": "finalizers" in metadata}


def _budget(rng: Rng, name: str) -> Json:
    spec: Json = rng.choice(({"minAvailable": 1}, {"maxUnavailable": "50%"}, {"maxUnavailable": 0}, {}))
    if rng.random() < 0.95:
        spec = {**spec, "selector": rng.choice(_SELECTORS)}
    if rng.random() < 0.4:
        spec = {**spec, "unhealthyPodEvictionPolicy": rng.choice(("IfHealthyBudget", "AlwaysAllow"))}
    status = {
        "disruptionsAllowed": rng.choice((0, 0, 1, 5)), "currentHealthy": rng.choice((0, 1, 2, 3)),
        "desiredHealthy": rng.choice((0, 1, 2)), "expectedPods": 3, "observedGeneration": rng.choice((1, 1, 1, 0)),
    }  # fmt: skip
    return {"metadata": {"name": name}, "spec": spec, "status": status}


class UndisturbedStore(Store):
    """The embedded store without its disruption controller."""

    def __init__(self) -> None:
        super().__init__(now=lambda: START)

    def _after_change(self, change: Change) -> None:
        ObjectStorage._after_change(self, change)


def create(store: Store, problem: EvictionProblem) -> None:
    """Create the problem's objects, and set their statuses."""
    namespace = problem.namespace
    store.create(kinds.NAMESPACES, {"metadata": {"name": namespace}})
    with contextlib.suppress(ApiError):  # another controller's work, which doesn't run
        store.create(kinds.SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, namespace=namespace)
    for kind, objects in ((kinds.PODS, problem.pods), (kinds.POD_DISRUPTION_BUDGETS, problem.budgets)):
        for obj in objects:
            name = obj["metadata"]["name"]
            store.create(kind, {"metadata": obj["metadata"], "spec": obj["spec"]}, namespace=namespace)
            status = {"status": obj["status"]}
            store.patch(kind, name, status, namespace=namespace, subresource="status", patch_type="merge")
            if obj.get("isDeleted"):
                store.delete(kind, name, namespace=namespace, grace_period_seconds=0)


def api_verdicts(ask: Ask, problem: EvictionProblem) -> dict[str, str]:
    """What the eviction API says of each pod, without evicting it. ``ask`` posts an object and returns the answer."""
    return {pod["metadata"]["name"]: _api_verdict(ask, problem.namespace, pod) for pod in problem.pods}


def _api_verdict(ask: Ask, namespace: str, pod: Json) -> str:
    metadata = {"name": pod["metadata"]["name"], "namespace": namespace}
    path = f"/api/v1/namespaces/{namespace}/pods/{metadata['name']}/eviction"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    status, _ = ask(path, eviction)
    return ALLOWED if status == _CREATED else str(status)


def tenon_verdicts(store: Store, problem: EvictionProblem) -> dict[str, str]:
    """What Tenon says of each pod as the store has it."""
    stored = store.list(kinds.POD_DISRUPTION_BUDGETS, namespace=problem.namespace)
    budgets = PodDisruptionBudgets([convert(obj, PodDisruptionBudget) for obj in stored])
    pods = [convert(obj, Pod) for obj in store.list(kinds.PODS, namespace=problem.namespace)]
    return {pod.metadata.name: _tenon_verdict(budgets, pod) for pod in pods}


def _tenon_verdict(budgets: PodDisruptionBudgets, pod: Pod) -> str:
    blocker = budgets.eviction_blocker(pod)
    if blocker is None:
        return ALLOWED
    return SEVERAL if blocker.by.startswith("Pod ") else TOO_MANY
