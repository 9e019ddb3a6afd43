"""StatefulSets: pods with lasting names and volumes, made and deleted one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.controllers.deployments import template_hash
from local.kubernetes.controllers.informer import Informer
from local.kubernetes.controllers.object_updates import remove, set_status
from local.kubernetes.controllers.owned_pods import Families, is_ready, make, make_pod

if TYPE_CHECKING:
    from datetime import datetime

    from local.kubernetes.controllers.owned_pods import Family
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store

HASH = "controller-revision-hash"
POD_NAME, POD_INDEX = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"


class StatefulSets:
    """Keeps every StatefulSet's pods, in order unless it asks for Parallel."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._feed = Informer(store, kinds.STATEFUL_SETS, kinds.PODS)
        self._sets: dict[str, Obj] = {}
        self._families = Families(kinds.STATEFUL_SETS)

    def due(self) -> datetime | None:
        """Never by itself."""
        return None

    def step(self, now: datetime) -> bool:  # noqa: ARG002 (nothing here depends on time)
        """Take the StatefulSets that something happened to one step on."""
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
            else:
                self._sets[uid] = change.object
        for uid in affected:
            if (stateful_set := self._sets.get(uid)) is not None:
                self._reconcile(stateful_set, self._families.of(uid))
        return self._store.version != version

    def _reconcile(self, stateful_set: Obj, family: Family) -> None:
        meta, spec = stateful_set["metadata"], stateful_set["spec"]
        hashed = template_hash(spec["template"])
        if "deletionTimestamp" not in meta:
            self._settle(stateful_set, family, hashed)
        updated = sum(p["metadata"]["labels"].get(HASH) == hashed for p in family.active.values())
        set_status(
            self._store,
            kinds.STATEFUL_SETS,
            stateful_set,
            observedGeneration=meta.get("generation", 1),
            replicas=len(family.active),
            readyReplicas=len(family.ready) or None,
            availableReplicas=len(family.ready),
            currentReplicas=len(family.active) or None,
            updatedReplicas=updated or None,
        )

    def _settle(self, stateful_set: Obj, family: Family, hashed: str) -> None:
        """Make what is missing from the lowest name on, then delete what is too many from the highest, then update."""
        spec = stateful_set["spec"]
        replicas, ordered = spec.get("replicas", 1), spec.get("podManagementPolicy", "OrderedReady") != "Parallel"
        by_index = {_index(pod): pod for pod in (*family.active.values(), *family.leaving.values())}
        for pod in family.ended.values():
            remove(self._store, kinds.PODS, pod)
            by_index[_index(pod)] = pod
        for index in range(replicas):
            present = by_index.get(index)
            if present is None:
                self._make(stateful_set, index, hashed)
            if ordered and (present is None or not is_ready(present) or "deletionTimestamp" in present["metadata"]):
                return
        for index in sorted((i for i in by_index if i >= replicas), reverse=True):
            remove(self._store, kinds.PODS, by_index[index])
            if ordered:
                return
        if (spec.get("updateStrategy") or {}).get("type") != "OnDelete":
            old = [i for i, pod in by_index.items() if pod["metadata"]["labels"].get(HASH) != hashed]
            if old and not family.leaving:
                remove(self._store, kinds.PODS, by_index[max(old)])

    def _make(self, stateful_set: Obj, index: int, hashed: str) -> None:
        meta, spec = stateful_set["metadata"], stateful_set["spec"]
        name = f"{meta['name']}-{index}"
        volumes = list(spec["template"]["spec"].get("volumes") or [])
        for template in spec.get("volumeClaimTemplates") or []:
            volume = template["metadata"]["name"]
            claim = f"{volume}-{name}"
            if self._store.find(kinds.PERSISTENT_VOLUME_CLAIMS, claim, namespace=meta["namespace"]) is None:
                wanted = {"metadata": {**template["metadata"], "name": claim}, "spec": template["spec"]}
                make(self._store, kinds.PERSISTENT_VOLUME_CLAIMS, wanted, meta["namespace"])
            volumes = [v for v in volumes if v["name"] != volume]
            volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": claim}})
        make_pod(
            self._store,
            kinds.STATEFUL_SETS,
            stateful_set,
            name=name,
            labels={POD_NAME: name, POD_INDEX: str(index), HASH: hashed},
            spec={"hostname": name, "subdomain": spec.get("serviceName", ""), "volumes": volumes},
        )


def _index(pod: Obj) -> int:
    return int(pod["metadata"]["name"].rpartition("-")[2])
