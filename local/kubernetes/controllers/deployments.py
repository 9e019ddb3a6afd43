"""Deployments: one ReplicaSet for each template, and rolling updates within maxSurge and maxUnavailable."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from local.kubernetes import kinds
from local.kubernetes.conditions import with_condition
from local.kubernetes.controllers.owned_pods import controller_of, controller_reference, is_terminating
from local.kubernetes.informer import Informer
from local.kubernetes.object_updates import create, delete, update, update_status

if TYPE_CHECKING:
    from datetime import datetime

    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store

TEMPLATE_HASH = "pod-template-hash"
REVISION_ANNOTATION = "deployment.kubernetes.io/revision"

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_HASH_LENGTH = 10
_DEFAULT_HISTORY_LIMIT = 10
_DEFAULT_LIMIT = "25%"


class Deployments:
    """Keeps the ReplicaSets and the status of every Deployment."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._informer = Informer(store, kinds.DEPLOYMENTS, kinds.REPLICA_SETS)
        self._deployments: dict[str, Obj] = {}
        self._replica_sets: dict[str, dict[str, Obj]] = {}

    def due(self) -> datetime | None:
        """Never by itself."""
        return None

    def step(self, now: datetime) -> bool:
        """Reconcile the Deployments with changes."""
        version = self._store.version
        changed: dict[str, None] = {}
        for change in self._informer.pop_changes():
            obj = change.object
            uid = obj["metadata"]["uid"]
            if change.kind.plural == "deployments":
                changed[uid] = None
                if change.type == "DELETED":
                    self._deployments.pop(uid, None)
                    self._replica_sets.pop(uid, None)
                else:
                    self._deployments[uid] = obj
                continue
            owner = controller_of(obj)
            if owner is None or owner["kind"] != "Deployment":
                continue
            changed[owner["uid"]] = None
            if change.type == "DELETED":
                self._replica_sets.get(owner["uid"], {}).pop(uid, None)
            else:
                self._replica_sets.setdefault(owner["uid"], {})[uid] = obj
        for uid in changed:
            if (deployment := self._deployments.get(uid)) is not None:
                self._reconcile(deployment, now)
        return self._store.version != version

    def _reconcile(self, deployment: Obj, now: datetime) -> None:
        meta, spec = deployment["metadata"], deployment["spec"]
        if is_terminating(deployment):
            return
        sets = sorted(self._replica_sets.get(meta["uid"], {}).values(), key=_revision)
        current_hash = template_hash(spec["template"])
        new = next((s for s in sets if s["metadata"]["labels"].get(TEMPLATE_HASH) == current_hash), None)
        old = [s for s in sets if s is not new]
        if spec.get("paused"):
            self._update_status(deployment, new, sets, now)
            return
        if new is None:
            if _strategy(deployment) == "Recreate" and any(_status_replicas(s) for s in old):
                self._scale_all(old, 0)
            else:
                self._create_replica_set(deployment, current_hash, old)
        else:
            if _revision(new) != max(map(_revision, sets)):
                new = self._set_revision(new, max(map(_revision, sets)) + 1)
            self._roll(deployment, new, old)
            self._delete_history(deployment, old)
        self._update_status(deployment, new, sets, now)

    def _create_replica_set(self, deployment: Obj, hash_: str, old: list[Obj]) -> None:
        meta, spec = deployment["metadata"], deployment["spec"]
        template = spec["template"]
        template_meta = template.get("metadata") or {}
        labels = {**(template_meta.get("labels") or {}), TEMPLATE_HASH: hash_}
        total = sum(map(_spec_replicas, old))
        max_surge, _ = rolling_update_limits(deployment)
        replicas = _replicas(deployment)
        initial = replicas if not total else min(max(replicas + max_surge - total, 0), replicas)
        selector = spec["selector"]
        new = {
            "metadata": {
                "name": f"{meta['name']}-{hash_}",
                "labels": labels,
                "annotations": {REVISION_ANNOTATION: str(max(map(_revision, old), default=0) + 1)},
                "ownerReferences": [controller_reference(kinds.DEPLOYMENTS, deployment)],
            },
            "spec": {
                "replicas": initial,
                "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), TEMPLATE_HASH: hash_}},
                "template": {**template, "metadata": {**template_meta, "labels": labels}},
            },
        }
        create(self._store, kinds.REPLICA_SETS, new, meta["namespace"])

    def _roll(self, deployment: Obj, new: Obj, old: list[Obj]) -> None:
        """One step of a rolling update: scale up within maxSurge, else down within maxUnavailable."""
        replicas = _replicas(deployment)
        active = [s for s in old if _spec_replicas(s)]
        if not active or _strategy(deployment) == "Recreate":
            self._scale_all(active, 0)
            if not any(_status_replicas(s) for s in old):
                self._scale(new, replicas)
            return
        max_surge, max_unavailable = rolling_update_limits(deployment)
        total = _spec_replicas(new) + sum(map(_spec_replicas, active))
        surplus = max(replicas + max_surge - total, 0)
        target = min(_spec_replicas(new) + surplus, replicas)
        if target != _spec_replicas(new):
            self._scale(new, target)
            return
        self._scale_down(active, new, total, replicas - max_unavailable)

    def _scale_down(self, active: list[Obj], new: Obj, total: int, min_available: int) -> None:
        """Scale one old ReplicaSet down: first by its unavailable pods, then by what availability allows."""
        removable = total - min_available - (_spec_replicas(new) - _available(new))
        for replica_set in active:
            unavailable = max(_spec_replicas(replica_set) - _available(replica_set), 0)
            removed = min(unavailable, max(removable, 0))
            if removed:
                self._scale(replica_set, _spec_replicas(replica_set) - removed)
                return
        removable = _available(new) + sum(map(_available, active)) - min_available
        for replica_set in active:
            removed = min(_spec_replicas(replica_set), max(removable, 0))
            if removed:
                self._scale(replica_set, _spec_replicas(replica_set) - removed)
                return

    def _scale_all(self, sets: list[Obj], replicas: int) -> None:
        for replica_set in sets:
            self._scale(replica_set, replicas)

    def _scale(self, replica_set: Obj, replicas: int) -> None:
        if _spec_replicas(replica_set) != replicas:
            meta = replica_set["metadata"]
            if self._store.find(kinds.REPLICA_SETS, meta["name"], namespace=meta["namespace"]) is not None:
                patch = {"spec": {"replicas": replicas}}
                self._store.patch(kinds.REPLICA_SETS, meta["name"], patch, namespace=meta["namespace"])

    def _set_revision(self, replica_set: Obj, revision: int) -> Obj:
        """Give the ReplicaSet a new revision, because its template is the Deployment's again."""

        def change(latest: Obj) -> Obj:
            meta = latest["metadata"]
            return {
                **latest,
                "metadata": {
                    **meta,
                    "annotations": {**(meta.get("annotations") or {}), REVISION_ANNOTATION: str(revision)},
                },
            }

        return update(self._store, kinds.REPLICA_SETS, replica_set, change) or replica_set

    def _delete_history(self, deployment: Obj, old: list[Obj]) -> None:
        finished = [s for s in old if not _spec_replicas(s) and not _status_replicas(s)]
        limit = deployment["spec"].get("revisionHistoryLimit", _DEFAULT_HISTORY_LIMIT)
        for replica_set in finished[: max(len(finished) - limit, 0)]:
            delete(self._store, kinds.REPLICA_SETS, replica_set)

    def _update_status(self, deployment: Obj, new: Obj | None, sets: list[Obj], now: datetime) -> None:
        replicas = _replicas(deployment)
        total, available = sum(map(_status_replicas, sets)), sum(map(_available, sets))
        _, max_unavailable = rolling_update_limits(deployment)
        enough = available >= replicas - max_unavailable
        updated = _status_replicas(new) if new else 0
        complete = updated == replicas == total == available
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
        update_status(
            self._store,
            kinds.DEPLOYMENTS,
            deployment,
            observedGeneration=deployment["metadata"].get("generation", 1),
            replicas=total or None,
            updatedReplicas=updated or None,
            readyReplicas=sum((s.get("status") or {}).get("readyReplicas", 0) for s in sets) or None,
            availableReplicas=available or None,
            unavailableReplicas=max(replicas - available, 0) or None,
            conditions=conditions,
        )


def template_hash(template: Obj) -> str:
    """The hash that names a template's ReplicaSet, in Kubernetes' alphabet; equal for equal templates."""
    digest = hashlib.sha256(msgspec.json.encode(template, order="deterministic")).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:_HASH_LENGTH])


def rolling_update_limits(deployment: Obj) -> tuple[int, int]:
    """MaxSurge and maxUnavailable as numbers of pods: percentages are rounded up and down, respectively."""
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    replicas = _replicas(deployment)
    surge = _scaled_value(rolling.get("maxSurge", _DEFAULT_LIMIT), replicas, up=True)
    unavailable = _scaled_value(rolling.get("maxUnavailable", _DEFAULT_LIMIT), replicas, up=False)
    return surge, unavailable if surge or unavailable else 1


def _scaled_value(value: int | str, total: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    hundredths = total * int(value.removesuffix("%"))
    return -(-hundredths // 100) if up else hundredths // 100


def _replicas(deployment: Obj) -> int:
    return int(deployment["spec"].get("replicas", 1))


def _strategy(deployment: Obj) -> str:
    return str((deployment["spec"].get("strategy") or {}).get("type", "RollingUpdate"))


def _spec_replicas(replica_set: Obj) -> int:
    return int(replica_set["spec"].get("replicas", 1))


def _status_replicas(replica_set: Obj) -> int:
    return int((replica_set.get("status") or {}).get("replicas", 0))


def _available(replica_set: Obj) -> int:
    return int((replica_set.get("status") or {}).get("availableReplicas", 0))


def _revision(replica_set: Obj) -> int:
    return int((replica_set["metadata"].get("annotations") or {}).get(REVISION_ANNOTATION, "0"))
