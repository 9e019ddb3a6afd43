"""Volumes come to be for claims, are attached to the nodes of the pods that mount them, and go with their claims.

What the volume controller, the EBS driver's provisioner and its attacher do together, each after a moment: a claim
that waits for its first pod gets a volume in the zone of the node that the scheduler selected.
"""

from __future__ import annotations

import hashlib
import heapq
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.controllers.informer import Informer
from local.kubernetes.controllers.object_updates import remove, rewrite
from local.kubernetes.controllers.owned_pods import make
from local.kubernetes.conversion import typed
from local.kubernetes.scheduler.node_info import Place
from local.kubernetes.scheduler.volume_plugins import (
    NO_PROVISIONER,
    SELECTED_NODE,
    WAITS,
    Storage,
    driver_of,
    is_bound,
)
from shared.api.kubernetes import Node
from shared.api.labels import ZONE, normalize_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.kubernetes.objects import Change, Obj
    from local.kubernetes.registry.store import Store
    from shared.api.storage import StorageClass

PROVISIONED_AFTER = timedelta(seconds=1)
ATTACHED_AFTER = timedelta(seconds=1)
DETACHED_AFTER = timedelta(seconds=2)
"""From the end of the last pod that mounts a volume on a node to the end of its VolumeAttachment."""

_ENDED = frozenset({"Succeeded", "Failed"})
Mount = tuple[str, str]
"""Node and volume."""


class PersistentVolumes:
    """Provisions, binds, attaches, detaches and deletes volumes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._feed = Informer(
            store,
            kinds.NODES,
            kinds.STORAGE_CLASSES,
            kinds.PERSISTENT_VOLUMES,
            kinds.PERSISTENT_VOLUME_CLAIMS,
            kinds.PODS,
        )
        self._storage = Storage()
        self._nodes: dict[str, Node] = {}
        self._mounting: dict[str, tuple[str, str, tuple[str, ...]]] = {}
        self._attached: dict[Mount, set[str]] = {}
        self._in_work: set[str] = set()
        self._agenda: list[tuple[datetime, int, Callable[[datetime], None]]] = []
        self._entries = 0

    def due(self) -> datetime | None:
        """When the next volume is ready, attached or detached."""
        return self._agenda[0][0] if self._agenda else None

    def step(self, now: datetime) -> bool:
        """Take note of what changed, and do what is due."""
        version, entries = self._store.version, self._entries
        storage_changed = False
        for change in self._feed.take():
            storage_changed |= change.kind.plural.startswith(("persistent", "storage"))
            self._learn(change, now)
        if storage_changed:
            for claim in list(self._storage.claims.values()):
                self._serve(claim, now)
        while self._agenda and self._agenda[0][0] <= now:
            heapq.heappop(self._agenda)[2](now)
        return self._store.version != version or self._entries != entries

    def _later(self, when: datetime, do: Callable[[datetime], None]) -> None:
        self._entries += 1
        heapq.heappush(self._agenda, (when, self._entries, do))

    def _learn(self, change: Change, now: datetime) -> None:
        obj, gone = change.object, change.type == "DELETED"
        match change.kind.plural:
            case "nodes":
                self._nodes.pop(obj["metadata"]["name"], None)
                if not gone:
                    self._nodes[obj["metadata"]["name"]] = typed(obj, Node)
            case "pods":
                self._learn_pod(obj, now, gone=gone)
            case plural:
                self._storage.record(plural, obj, gone=gone)
                if gone and plural == "persistentvolumeclaims":
                    self._reclaim(obj)
                elif plural == "persistentvolumeclaims":
                    self._attach_waiting(now)

    # Claims

    def _serve(self, claim: Obj, now: datetime) -> None:
        """Begin what the claim needs: a volume that is there, or one that is made."""
        uid = claim["metadata"]["uid"]
        if is_bound(claim) or uid in self._in_work or "deletionTimestamp" in claim["metadata"]:
            return
        named = claim["spec"].get("volumeName")
        if named:
            if (volume := self._storage.volumes.get(named)) is not None:
                self._bind(claim, volume)
            return
        storage_class = self._storage.class_of(claim)
        waits = storage_class is not None and storage_class.volume_binding_mode == WAITS
        node = self._nodes.get((claim["metadata"].get("annotations") or {}).get(SELECTED_NODE, ""))
        if waits and node is None:
            return
        static = self._static(claim, node)
        if static is not None:
            self._bind(claim, static)
        elif storage_class is not None and storage_class.provisioner != NO_PROVISIONER:
            self._in_work.add(uid)
            self._later(now + PROVISIONED_AFTER, lambda _at: self._provision(claim, storage_class, node))

    def _static(self, claim: Obj, node: Node | None) -> Obj | None:
        places = [node] if node is not None else list(self._nodes.values())
        found = (self._storage.static_volume(claim, Place(n, 0)) for n in places)
        return next((volume for volume in found if volume is not None), None)

    def _provision(self, claim: Obj, storage_class: StorageClass, node: Node | None) -> None:
        meta = claim["metadata"]
        self._in_work.discard(meta["uid"])
        if self._store.find(kinds.PERSISTENT_VOLUME_CLAIMS, meta["name"], namespace=meta["namespace"]) is None:
            return
        zone = node.metadata.labels.get(ZONE, "") if node is not None else self._zone_for(claim, storage_class)
        volume = self._store.create(
            kinds.PERSISTENT_VOLUMES,
            {
                "metadata": {
                    "name": f"pvc-{meta['uid']}",
                    "annotations": {"pv.kubernetes.io/provisioned-by": storage_class.provisioner},
                },
                "spec": {
                    "capacity": claim["spec"].get("resources", {}).get("requests") or {},
                    "accessModes": claim["spec"].get("accessModes") or [],
                    "storageClassName": storage_class.metadata.name,
                    "persistentVolumeReclaimPolicy": "Delete",
                    "csi": {"driver": storage_class.provisioner, "volumeHandle": f"vol-{_digest(meta['uid'])}"},
                    **(_in_zone(zone) if zone else {}),
                },
            },
        )
        self._bind(claim, volume)

    def _zone_for(self, claim: Obj, storage_class: StorageClass) -> str:
        """An immediate volume's zone: one that the class allows or that has nodes, the same for the same claim."""
        allowed = {
            value
            for term in storage_class.allowed_topologies
            for expression in term.match_label_expressions
            if normalize_key(expression.key) == ZONE
            for value in expression.values
        }
        zones = sorted(allowed or {n.metadata.labels[ZONE] for n in self._nodes.values() if ZONE in n.metadata.labels})
        return zones[int(_digest(claim["metadata"]["name"]), 16) % len(zones)] if zones else ""

    def _bind(self, claim: Obj, volume: Obj) -> None:
        """Bind claim and volume to each other."""
        meta, name = claim["metadata"], volume["metadata"]["name"]
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
        }
        taken = volume["spec"].get("claimRef")
        if taken and taken.get("uid", meta["uid"]) != meta["uid"]:
            return
        written = rewrite(
            self._store,
            kinds.PERSISTENT_VOLUMES,
            volume,
            lambda latest: {**latest, "spec": {**latest["spec"], "claimRef": reference}, "status": {"phase": "Bound"}},
        )
        if written is None:
            return
        self._storage.record("persistentvolumes", written, gone=False)
        bound = rewrite(
            self._store,
            kinds.PERSISTENT_VOLUME_CLAIMS,
            claim,
            lambda latest: {
                **latest,
                "spec": {**latest["spec"], "volumeName": name},
                "status": {
                    **(latest.get("status") or {}),
                    "phase": "Bound",
                    "accessModes": volume["spec"].get("accessModes") or [],
                    "capacity": volume["spec"].get("capacity") or {},
                },
            },
        )
        if bound is not None:
            self._storage.record("persistentvolumeclaims", bound, gone=False)

    def _reclaim(self, claim: Obj) -> None:
        """The claim is gone: its volume goes too, or is Released, as its policy says."""
        volume = self._storage.volumes.get(claim["spec"].get("volumeName") or "")
        if volume is None:
            return
        if volume["spec"].get("persistentVolumeReclaimPolicy", "Retain") == "Delete":
            remove(self._store, kinds.PERSISTENT_VOLUMES, volume)
        else:
            rewrite(
                self._store,
                kinds.PERSISTENT_VOLUMES,
                volume,
                lambda latest: {**latest, "status": {"phase": "Released"}},
            )

    # Pods

    def _learn_pod(self, pod: Obj, now: datetime, *, gone: bool) -> None:
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        if not gone and any("ephemeral" in volume for volume in spec.get("volumes") or []):
            self._make_ephemeral(pod)
        if gone or pod["status"].get("phase") in _ENDED:
            if self._mounting.pop(uid, None) is not None:
                for mount, pods in list(self._attached.items()):
                    if uid in pods:
                        pods.discard(uid)
                        self._later(now + DETACHED_AFTER, partial(self._detach, mount))
        elif spec.get("nodeName") and uid not in self._mounting:
            claims = tuple(_claims(pod))
            if claims:
                self._mounting[uid] = (spec["nodeName"], pod["metadata"]["namespace"], claims)
                self._attach(uid, now)

    def _make_ephemeral(self, pod: Obj) -> None:
        """Make the claims of the pod's generic ephemeral volumes; they belong to the pod."""
        meta = pod["metadata"]
        present = self._store.find(kinds.PODS, meta["name"], namespace=meta["namespace"])
        if present is None or present["metadata"]["uid"] != meta["uid"] or "deletionTimestamp" in present["metadata"]:
            return
        for volume in pod["spec"].get("volumes") or []:
            template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
            name = f"{meta['name']}-{volume['name']}"
            if not template or self._store.find(kinds.PERSISTENT_VOLUME_CLAIMS, name, namespace=meta["namespace"]):
                continue
            owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}
            claim = {
                "metadata": {**(template.get("metadata") or {}), "name": name, "ownerReferences": [owner]},
                "spec": template["spec"],
            }
            make(self._store, kinds.PERSISTENT_VOLUME_CLAIMS, claim, meta["namespace"])

    def _attach_waiting(self, now: datetime) -> None:
        for uid in self._mounting:
            self._attach(uid, now)

    def _attach(self, uid: str, now: datetime) -> None:
        """Attach what the pod mounts to its node, as far as its claims are bound."""
        node, namespace, claims = self._mounting[uid]
        for name in claims:
            claim = self._storage.claims.get((namespace, name))
            if claim is None or not is_bound(claim):
                continue
            mount = (node, claim["spec"]["volumeName"])
            pods = self._attached.setdefault(mount, set())
            if not pods:
                self._later(now + ATTACHED_AFTER, partial(self._make_attachment, mount))
            pods.add(uid)

    def _make_attachment(self, mount: Mount, _now: datetime) -> None:
        node, name = mount
        volume = self._storage.volumes.get(name)
        driver = driver_of(volume) if volume else ""
        attachment = _attachment_name(mount)
        if not driver or not self._attached.get(mount) or self._store.find(kinds.VOLUME_ATTACHMENTS, attachment):
            return
        made = self._store.create(
            kinds.VOLUME_ATTACHMENTS,
            {
                "metadata": {"name": attachment},
                "spec": {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": name}},
            },
        )
        rewrite(self._store, kinds.VOLUME_ATTACHMENTS, made, lambda latest: {**latest, "status": {"attached": True}})

    def _detach(self, mount: Mount, _now: datetime) -> None:
        if self._attached.get(mount):
            return
        self._attached.pop(mount, None)
        found = self._store.find(kinds.VOLUME_ATTACHMENTS, _attachment_name(mount))
        if found is not None:
            remove(self._store, kinds.VOLUME_ATTACHMENTS, found)


def _claims(pod: Obj) -> list[str]:
    names: list[str] = []
    for volume in pod["spec"].get("volumes") or []:
        if claim := volume.get("persistentVolumeClaim"):
            names.append(claim["claimName"])
        elif volume.get("ephemeral"):
            names.append(f"{pod['metadata']['name']}-{volume['name']}")
    return names


def _in_zone(zone: str) -> Obj:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:17]


def _attachment_name(mount: Mount) -> str:
    return f"csi-{hashlib.sha256('/'.join(mount).encode()).hexdigest()}"
