"""StatefulSets: pods with stable names and volumes, created and deleted one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.controllers.deployments import template_hash
from local.kubernetes.controllers.owned_pods import Workloads, create_pod, is_ready, is_terminating
from local.kubernetes.object_updates import create, delete, update_status

if TYPE_CHECKING:
    from datetime import datetime

    from local.kubernetes.controllers.owned_pods import OwnedPods
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store

REVISION_HASH = "controller-revision-hash"
POD_NAME, POD_INDEX = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"


class StatefulSets:
    """Keeps every StatefulSet's pods, in order unless its policy is Parallel."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stateful_sets = Workloads(store, kinds.STATEFUL_SETS)
        self._pods = self._stateful_sets.pods

    def due(self) -> datetime | None:
        """Never by itself."""
        return None

    def step(self, now: datetime) -> bool:  # noqa: ARG002 (nothing here depends on time)
        """Reconcile the StatefulSets with changes."""
        version = self._store.version
        for uid in self._stateful_sets.pop_changed():
            if (stateful_set := self._stateful_sets.get(uid)) is not None:
                self._reconcile(stateful_set, self._pods.of(uid))
        return self._store.version != version

    def _reconcile(self, stateful_set: Obj, pods: OwnedPods) -> None:
        meta, spec = stateful_set["metadata"], stateful_set["spec"]
        revision = template_hash(spec["template"])
        if not is_terminating(stateful_set):
            self._reconcile_pods(stateful_set, pods, revision)
        updated = sum(_revision(pod) == revision for pod in pods.active.values())
        update_status(
            self._store,
            kinds.STATEFUL_SETS,
            stateful_set,
            observedGeneration=meta.get("generation", 1),
            replicas=len(pods.active),
            readyReplicas=len(pods.ready) or None,
            availableReplicas=len(pods.ready),
            currentReplicas=len(pods.active) or None,
            updatedReplicas=updated or None,
        )

    def _reconcile_pods(self, stateful_set: Obj, pods: OwnedPods, revision: str) -> None:
        """Create missing pods in ascending order, delete surplus ones in descending order, then update old ones."""
        spec = stateful_set["spec"]
        replicas, ordered = spec.get("replicas", 1), spec.get("podManagementPolicy", "OrderedReady") != "Parallel"
        by_index = {_index(pod): pod for pod in (*pods.active.values(), *pods.terminating.values())}
        for pod in pods.ended.values():
            delete(self._store, kinds.PODS, pod)
            by_index[_index(pod)] = pod
        for index in range(replicas):
            current = by_index.get(index)
            if current is None:
                self._create_pod(stateful_set, index, revision)
            if ordered and not _is_running(current):
                return
        for index in sorted((i for i in by_index if i >= replicas), reverse=True):
            delete(self._store, kinds.PODS, by_index[index])
            if ordered:
                return
        if not pods.terminating and (spec.get("updateStrategy") or {}).get("type") != "OnDelete":
            self._update_last(by_index, revision)

    def _update_last(self, by_index: dict[int, Obj], revision: str) -> None:
        """Delete the last pod of an older revision; it is created again from the new template."""
        outdated = [index for index, pod in by_index.items() if _revision(pod) != revision]
        if outdated:
            delete(self._store, kinds.PODS, by_index[max(outdated)])

    def _create_pod(self, stateful_set: Obj, index: int, revision: str) -> None:
        meta, spec = stateful_set["metadata"], stateful_set["spec"]
        name = f"{meta['name']}-{index}"
        volumes = list(spec["template"]["spec"].get("volumes") or [])
        for template in spec.get("volumeClaimTemplates") or []:
            volume = template["metadata"]["name"]
            claim_name = f"{volume}-{name}"
            if self._store.find(kinds.PERSISTENT_VOLUME_CLAIMS, claim_name, namespace=meta["namespace"]) is None:
                claim = {"metadata": {**template["metadata"], "name": claim_name}, "spec": template["spec"]}
                create(self._store, kinds.PERSISTENT_VOLUME_CLAIMS, claim, meta["namespace"])
            volumes = [v for v in volumes if v["name"] != volume]
            volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": claim_name}})
        create_pod(
            self._store,
            kinds.STATEFUL_SETS,
            stateful_set,
            name=name,
            labels={POD_NAME: name, POD_INDEX: str(index), REVISION_HASH: revision},
            spec={"hostname": name, "subdomain": spec.get("serviceName", ""), "volumes": volumes},
        )


def _is_running(pod: Obj | None) -> bool:
    return pod is not None and is_ready(pod) and not is_terminating(pod)


def _revision(pod: Obj) -> str | None:
    revision: str | None = pod["metadata"]["labels"].get(REVISION_HASH)
    return revision


def _index(pod: Obj) -> int:
    return int(pod["metadata"]["name"].rpartition("-")[2])
