"""ReplicaSets: so many pods of one template, made and deleted in the order a real cluster chooses."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.controllers.informer import Informer
from local.kubernetes.controllers.object_updates import emit, remove, set_status
from local.kubernetes.controllers.owned_pods import Families, is_ready, make_pod
from local.kubernetes.registry.object_meta import generated_name
from shared.api.labels import POD_DELETION_COST

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store

RETRY_AFTER = timedelta(seconds=10)
"""How long after a refused pod the next is tried."""

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


class ReplicaSets:
    """Keeps every ReplicaSet at its number of pods, and its status true."""

    def __init__(self, store: Store, *, seed: int) -> None:
        self._store = store
        self._rng = random.Random(f"replicasets/{seed}")  # noqa: S311 (names in a simulation)
        self._feed = Informer(store, kinds.REPLICA_SETS, kinds.PODS)
        self._sets: dict[str, Obj] = {}
        self._families = Families(kinds.REPLICA_SETS)
        self._refused: dict[str, datetime] = {}

    def due(self) -> datetime | None:
        """When a refused pod is tried again."""
        return min(self._refused.values(), default=None)

    def step(self, now: datetime) -> bool:
        """Bring the ReplicaSets that something happened to back to what they ask for."""
        version = self._store.version
        affected: dict[str, None] = {}
        for change in self._feed.take():
            if change.kind.plural == "pods":
                affected[self._families.learn(change)] = None
                continue
            uid = change.object["metadata"]["uid"]
            affected[uid] = None
            if change.type == "DELETED":
                self._sets.pop(uid, None)
                self._refused.pop(uid, None)
            else:
                self._sets[uid] = change.object
        affected |= dict.fromkeys(uid for uid, when in self._refused.items() if when <= now)
        for uid in affected:
            self._refused.pop(uid, None)
            if (replica_set := self._sets.get(uid)) is not None:
                self._reconcile(replica_set, now)
        return self._store.version != version

    def _reconcile(self, replica_set: Obj, now: datetime) -> None:
        meta = replica_set["metadata"]
        family = self._families.of(meta["uid"])
        if "deletionTimestamp" not in meta:
            missing = replica_set["spec"].get("replicas", 1) - len(family.active)
            if missing > 0:
                self._make(replica_set, missing, now)
            elif missing < 0:
                for pod in sorted(family.active.values(), key=_dispensable(family.active))[:-missing]:
                    remove(self._store, kinds.PODS, pod)
        set_status(
            self._store,
            kinds.REPLICA_SETS,
            replica_set,
            replicas=len(family.active),
            fullyLabeledReplicas=len(family.active) or None,
            readyReplicas=len(family.ready) or None,
            availableReplicas=len(family.ready) or None,
            observedGeneration=meta.get("generation", 1),
        )

    def _make(self, replica_set: Obj, many: int, now: datetime) -> None:
        meta = replica_set["metadata"]
        for _ in range(many):
            name = generated_name(f"{meta['name']}-", self._rng)
            if make_pod(self._store, kinds.REPLICA_SETS, replica_set, name=name) is None:
                self._refused[meta["uid"]] = now + RETRY_AFTER
                message = f'Error creating: the API refused pod "{name}"'
                emit(
                    self._store,
                    replica_set,
                    reason="FailedCreate",
                    message=message,
                    now=now,
                    component="replicaset-controller",
                    warning=True,
                )
                return


class _dispensable:  # noqa: N801 (a sort key, used as a function)
    """What is deleted first; source: kube-controller-manager's ``ActivePodsWithRanks``.

    Without a node, pending, not ready, of lower deletion cost, on the node with more of them, younger.
    """

    def __init__(self, pods: dict[str, Obj]) -> None:
        self._crowd = Counter(pod["spec"].get("nodeName", "") for pod in pods.values())

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
            -self._crowd[node],
            _Latest(ready_since),
            _Latest(pod["metadata"]["creationTimestamp"]),
            pod["metadata"]["name"],
        )


class _Latest(str):
    """A timestamp that sorts the latest first."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)
