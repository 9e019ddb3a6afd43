"""ReplicaSets: a number of pods from one template, deleted in the order of a real cluster."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.controllers.owned_pods import Workloads, create_pod, is_ready, is_terminating
from local.kubernetes.object_updates import delete, record_event, update_status
from local.kubernetes.registry.object_meta import generated_name
from shared.api.labels import POD_DELETION_COST

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store

RETRY_AFTER = timedelta(seconds=10)
"""From a refused pod to the next attempt."""

WORKERS = 5
"""How many ReplicaSets create pods at the same time (``--concurrent-replicaset-syncs``), in batches of 1, 2, 4, … pods.

So the pods of workloads that are applied together are queued mixed, and a node gets pods of several.
"""

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


class ReplicaSets:
    """Keeps the number of pods and the status of every ReplicaSet."""

    def __init__(self, store: Store, *, seed: int) -> None:
        self._store = store
        self._rng = random.Random(f"replicasets/{seed}")  # noqa: S311 (names in a simulation)
        self._replica_sets = Workloads(store, kinds.REPLICA_SETS)
        self._pods = self._replica_sets.pods
        self._retries: dict[str, datetime] = {}

    def due(self) -> datetime | None:
        """When the next refused pod is tried again."""
        return min(self._retries.values(), default=None)

    def step(self, now: datetime) -> bool:
        """Reconcile the ReplicaSets with changes or due retries."""
        version = self._store.version
        changed = self._replica_sets.pop_changed()
        changed |= dict.fromkeys(uid for uid, when in self._retries.items() if when <= now)
        due = [replica_set for uid in changed if (replica_set := self._replica_sets.get(uid)) is not None]
        for uid in changed:
            self._retries.pop(uid, None)
        self._create_missing(due, now)
        for replica_set in due:
            self._reconcile(replica_set)
        return self._store.version != version

    def _missing(self, replica_set: Obj) -> int:
        """How many pods are missing; negative: too many."""
        if is_terminating(replica_set):
            return 0
        pods = self._pods.of(replica_set["metadata"]["uid"])
        missing: int = replica_set["spec"].get("replicas", 1) - len(pods.active)
        return missing

    def _create_missing(self, replica_sets: list[Obj], now: datetime) -> None:
        missing = [(replica_set, number) for replica_set in replica_sets if (number := self._missing(replica_set)) > 0]
        for i in range(0, len(missing), WORKERS):
            batch = 1
            left = missing[i : i + WORKERS]
            while left:
                self._rng.shuffle(left)
                left = [
                    (replica_set, number - batch)
                    for replica_set, number in left
                    if self._create_pods(replica_set, min(batch, number), now) and number > batch
                ]
                batch *= 2

    def _reconcile(self, replica_set: Obj) -> None:
        """Delete pods that are too many, and update the status."""
        meta = replica_set["metadata"]
        pods = self._pods.of(meta["uid"])
        missing = self._missing(replica_set)
        if missing < 0:
            for pod in sorted(pods.active.values(), key=_DeletionOrder(pods.active))[:-missing]:
                delete(self._store, kinds.PODS, pod)
        update_status(
            self._store,
            kinds.REPLICA_SETS,
            replica_set,
            replicas=len(pods.active),
            fullyLabeledReplicas=len(pods.active) or None,
            readyReplicas=len(pods.ready) or None,
            availableReplicas=len(pods.ready) or None,
            observedGeneration=meta.get("generation", 1),
        )

    def _create_pods(self, replica_set: Obj, number: int, now: datetime) -> bool:
        """Create that many pods; False if the API refused one."""
        meta = replica_set["metadata"]
        for _ in range(number):
            name = generated_name(f"{meta['name']}-", self._rng)
            if create_pod(self._store, kinds.REPLICA_SETS, replica_set, name=name) is None:
                self._retries[meta["uid"]] = now + RETRY_AFTER
                message = f'Error creating: the API refused pod "{name}"'
                record_event(
                    self._store,
                    replica_set,
                    reason="FailedCreate",
                    message=message,
                    now=now,
                    component="replicaset-controller",
                    warning=True,
                )
                return False
        return True


class _DeletionOrder:
    """The sort key by which pods are deleted; source: kube-controller-manager's ``ActivePodsWithRanks``.

    First those without a node, then pending, not ready, of lower deletion cost, on nodes with more of them, and
    younger.
    """

    def __init__(self, pods: dict[str, Obj]) -> None:
        self._pods_on_node = Counter(pod["spec"].get("nodeName", "") for pod in pods.values())

    def __call__(self, pod: Obj) -> tuple[object, ...]:
        node = pod["spec"].get("nodeName", "")
        cost = (pod["metadata"].get("annotations") or {}).get(POD_DELETION_COST, "0")
        ready_since = max(
            (c["lastTransitionTime"] for c in pod["status"].get("conditions") or [] if c["type"] == "Ready"), default=""
        )
        return (
            bool(node),
            _PHASES.get(pod["status"].get("phase", ""), 1),
            is_ready(pod),
            int(cost) if cost.removeprefix("-").isdigit() else 0,
            -self._pods_on_node[node],
            _Latest(ready_since),
            _Latest(pod["metadata"]["creationTimestamp"]),
            pod["metadata"]["name"],
        )


class _Latest(str):
    """A timestamp that sorts the latest first."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)
