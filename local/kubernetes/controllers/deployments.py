"""Deployments: one ReplicaSet for each template, and the way from one to the next within surge and unavailability."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from local.kubernetes import kinds
from local.kubernetes.controllers.informer import Informer
from local.kubernetes.controllers.object_updates import remove, rewrite, set_status, with_condition
from local.kubernetes.controllers.owned_pods import controller_of, make, reference

if TYPE_CHECKING:
    from datetime import datetime

    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store

HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_HASH_LENGTH = 10
_HISTORY = 10
_QUARTER = "25%"


class Deployments:
    """Keeps every Deployment's ReplicaSets as it asks, and its status true."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._feed = Informer(store, kinds.DEPLOYMENTS, kinds.REPLICA_SETS)
        self._deployments: dict[str, Obj] = {}
        self._sets: dict[str, dict[str, Obj]] = {}

    def due(self) -> datetime | None:
        """Never by itself."""
        return None

    def step(self, now: datetime) -> bool:
        """Take the Deployments that something happened to one step on."""
        version = self._store.version
        affected: dict[str, None] = {}
        for change in self._feed.take():
            obj = change.object
            uid = obj["metadata"]["uid"]
            if change.kind.plural == "deployments":
                affected[uid] = None
                if change.type == "DELETED":
                    self._deployments.pop(uid, None)
                    self._sets.pop(uid, None)
                else:
                    self._deployments[uid] = obj
                continue
            owner = controller_of(obj)
            if owner is None or owner["kind"] != "Deployment":
                continue
            affected[owner["uid"]] = None
            if change.type == "DELETED":
                self._sets.get(owner["uid"], {}).pop(uid, None)
            else:
                self._sets.setdefault(owner["uid"], {})[uid] = obj
        for uid in affected:
            if (deployment := self._deployments.get(uid)) is not None:
                self._reconcile(deployment, now)
        return self._store.version != version

    def _reconcile(self, deployment: Obj, now: datetime) -> None:
        meta, spec = deployment["metadata"], deployment["spec"]
        if "deletionTimestamp" in meta:
            return
        sets = sorted(self._sets.get(meta["uid"], {}).values(), key=_revision)
        wanted = template_hash(spec["template"])
        new = next((s for s in sets if s["metadata"]["labels"].get(HASH) == wanted), None)
        old = [s for s in sets if s is not new]
        if spec.get("paused"):
            self._report(deployment, new, sets, now)
            return
        if new is None:
            if _strategy(deployment) == "Recreate" and any(_held(s) for s in old):
                self._scale_all(old, 0)
            else:
                self._create_set(deployment, wanted, old)
        else:
            if _revision(new) != max(map(_revision, sets)):
                new = self._renumber(new, max(map(_revision, sets)) + 1)
            self._roll(deployment, new, old)
            self._forget_history(deployment, old)
        self._report(deployment, new, sets, now)

    def _create_set(self, deployment: Obj, hashed: str, old: list[Obj]) -> None:
        meta, spec = deployment["metadata"], deployment["spec"]
        template = spec["template"]
        template_meta = template.get("metadata") or {}
        labels = {**(template_meta.get("labels") or {}), HASH: hashed}
        total = sum(map(_asked, old))
        surge, _ = limits(deployment)
        replicas = _replicas(deployment)
        first = replicas if not total else min(max(replicas + surge - total, 0), replicas)
        selector = spec["selector"]
        new = {
            "metadata": {
                "name": f"{meta['name']}-{hashed}",
                "labels": labels,
                "annotations": {REVISION: str(max(map(_revision, old), default=0) + 1)},
                "ownerReferences": [reference(kinds.DEPLOYMENTS, deployment)],
            },
            "spec": {
                "replicas": first,
                "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH: hashed}},
                "template": {**template, "metadata": {**template_meta, "labels": labels}},
            },
        }
        make(self._store, kinds.REPLICA_SETS, new, meta["namespace"])

    def _roll(self, deployment: Obj, new: Obj, old: list[Obj]) -> None:
        """One step of the way: as many new ones as the surge allows, as few old ones as availability allows."""
        replicas = _replicas(deployment)
        active = [s for s in old if _asked(s)]
        if not active or _strategy(deployment) == "Recreate":
            self._scale_all(active, 0)
            if not any(_held(s) for s in old):
                self._scale(new, replicas)
            return
        surge, unavailable = limits(deployment)
        total = _asked(new) + sum(map(_asked, active))
        room = max(replicas + surge - total, 0)
        target = min(_asked(new) + room, replicas)
        if target != _asked(new):
            self._scale(new, target)
            return
        least = replicas - unavailable
        spare = total - least - (_asked(new) - _available(new))
        for replica_set in active:
            broken = min(max(_asked(replica_set) - _available(replica_set), 0), max(spare, 0))
            if broken:
                self._scale(replica_set, _asked(replica_set) - broken)
                return
        spare = _available(new) + sum(map(_available, active)) - least
        for replica_set in active:
            fewer = min(_asked(replica_set), max(spare, 0))
            if fewer:
                self._scale(replica_set, _asked(replica_set) - fewer)
                return

    def _scale_all(self, sets: list[Obj], replicas: int) -> None:
        for replica_set in sets:
            self._scale(replica_set, replicas)

    def _scale(self, replica_set: Obj, replicas: int) -> None:
        if _asked(replica_set) != replicas:
            meta = replica_set["metadata"]
            if self._store.find(kinds.REPLICA_SETS, meta["name"], namespace=meta["namespace"]) is not None:
                patch = {"spec": {"replicas": replicas}}
                self._store.patch(kinds.REPLICA_SETS, meta["name"], patch, namespace=meta["namespace"])

    def _renumber(self, replica_set: Obj, revision: int) -> Obj:
        """A template that comes back is the newest again."""

        def change(latest: Obj) -> Obj:
            meta = latest["metadata"]
            return {
                **latest,
                "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), REVISION: str(revision)}},
            }

        return rewrite(self._store, kinds.REPLICA_SETS, replica_set, change) or replica_set

    def _forget_history(self, deployment: Obj, old: list[Obj]) -> None:
        done = [s for s in old if not _asked(s) and not _held(s)]
        kept = deployment["spec"].get("revisionHistoryLimit", _HISTORY)
        for replica_set in done[: max(len(done) - kept, 0)]:
            remove(self._store, kinds.REPLICA_SETS, replica_set)

    def _report(self, deployment: Obj, new: Obj | None, sets: list[Obj], now: datetime) -> None:
        replicas = _replicas(deployment)
        held, available = sum(map(_held, sets)), sum(map(_available, sets))
        _, unavailable = limits(deployment)
        enough = available >= replicas - unavailable
        updated = _held(new) if new else 0
        complete = updated == replicas == held == available
        conditions = (deployment.get("status") or {}).get("conditions") or []
        conditions = with_condition(
            conditions,
            "Available",
            status=str(enough),
            reason="MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            message=f"Deployment {'has' if enough else 'does not have'} minimum availability.",
            now=now,
        )
        conditions = with_condition(
            conditions,
            "Progressing",
            status="True",
            reason="NewReplicaSetAvailable" if complete else "ReplicaSetUpdated",
            now=now,
        )
        set_status(
            self._store,
            kinds.DEPLOYMENTS,
            deployment,
            observedGeneration=deployment["metadata"].get("generation", 1),
            replicas=held or None,
            updatedReplicas=updated or None,
            readyReplicas=sum((s.get("status") or {}).get("readyReplicas", 0) for s in sets) or None,
            availableReplicas=available or None,
            unavailableReplicas=max(replicas - available, 0) or None,
            conditions=conditions,
        )


def template_hash(template: Obj) -> str:
    """The name a template gives its ReplicaSet: equal templates, equal hashes, in the letters Kubernetes uses."""
    digest = hashlib.sha256(msgspec.json.encode(template, order="deterministic")).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:_HASH_LENGTH])


def limits(deployment: Obj) -> tuple[int, int]:
    """How many pods more, and how many fewer, an update may have: surge is rounded up, unavailability down."""
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    replicas = _replicas(deployment)
    surge = _share(rolling.get("maxSurge", _QUARTER), replicas, up=True)
    unavailable = _share(rolling.get("maxUnavailable", _QUARTER), replicas, up=False)
    return surge, unavailable if surge or unavailable else 1


def _share(value: int | str, whole: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    hundredths = whole * int(value.removesuffix("%"))
    return -(-hundredths // 100) if up else hundredths // 100


def _replicas(deployment: Obj) -> int:
    return int(deployment["spec"].get("replicas", 1))


def _strategy(deployment: Obj) -> str:
    return str((deployment["spec"].get("strategy") or {}).get("type", "RollingUpdate"))


def _asked(replica_set: Obj) -> int:
    return int(replica_set["spec"].get("replicas", 1))


def _held(replica_set: Obj) -> int:
    return int((replica_set.get("status") or {}).get("replicas", 0))


def _available(replica_set: Obj) -> int:
    return int((replica_set.get("status") or {}).get("availableReplicas", 0))


def _revision(replica_set: Obj) -> int:
    return int((replica_set["metadata"].get("annotations") or {}).get(REVISION, "0"))
