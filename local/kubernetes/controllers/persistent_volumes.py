"""Volumes are provisioned and bound for claims, attached to the nodes of pods, and reclaimed with their claims.

The work of the volume controllers, the EBS driver's provisioner and its attacher, each after a delay: a claim that
waits for its first consumer gets a volume in the zone of the node that the scheduler selected.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.agenda import Agenda
from local.kubernetes.controllers.owned_pods import ENDED
from local.kubernetes.conversion import convert
from local.kubernetes.informer import Informer
from local.kubernetes.object_updates import create, delete, update
from local.kubernetes.scheduler.node_info import NodeInfo
from local.kubernetes.scheduler.volume_plugins import (
    NO_PROVISIONER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    VolumeBinder,
    driver_of,
    is_bound,
    selected_node,
)
from shared.api.kubernetes import Node
from shared.api.labels import ZONE, normalize_key

if TYPE_CHECKING:
    from local.kubernetes.objects import Change, Obj
    from local.kubernetes.registry.store import Store
    from shared.api.storage import StorageClass

PROVISIONING_DELAY = timedelta(seconds=1)
ATTACH_DELAY = timedelta(seconds=1)
DETACH_DELAY = timedelta(seconds=2)
"""From the end of the last pod that mounts a volume on a node to the removal of its VolumeAttachment."""

Attachment = tuple[str, str]
"""Node and volume."""


class PersistentVolumes:
    """Provisions, binds, attaches, detaches and deletes volumes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._informer = Informer(
            store,
            kinds.NODES,
            kinds.STORAGE_CLASSES,
            kinds.PERSISTENT_VOLUMES,
            kinds.PERSISTENT_VOLUME_CLAIMS,
            kinds.PODS,
        )
        self._volumes = VolumeBinder()
        self._nodes: dict[str, Node] = {}
        self._claims_of_pod: dict[str, tuple[str, str, tuple[str, ...]]] = {}
        self._attached: dict[Attachment, set[str]] = {}
        self._provisioning: set[str] = set()
        self._agenda = Agenda()
        self._at = self._agenda.at

    def due(self) -> datetime | None:
        """When the next volume is provisioned, attached or detached."""
        return self._agenda.due()

    def step(self, now: datetime) -> bool:
        """Take in all changes, and do what is due."""
        version, added = self._store.version, self._agenda.added
        volumes_changed = False
        for change in self._informer.pop_changes():
            is_gone = change.kind is kinds.NODES and change.type == "DELETED"
            volumes_changed |= is_gone or change.kind.plural.startswith(("persistent", "storage"))
            self._handle(change, now)
        if volumes_changed:
            for claim in list(self._volumes.claims.values()):
                self._bind_or_provision(claim, now)
        self._agenda.run(now)
        return self._store.version != version or self._agenda.added != added

    def _handle(self, change: Change, now: datetime) -> None:
        obj, deleted = change.object, change.type == "DELETED"
        match change.kind.plural:
            case "nodes":
                self._nodes.pop(obj["metadata"]["name"], None)
                if not deleted:
                    self._nodes[obj["metadata"]["name"]] = convert(obj, Node)
            case "pods":
                self._handle_pod(obj, now, deleted=deleted)
            case plural:
                self._volumes.update(plural, obj, deleted=deleted)
                if not deleted and plural == "persistentvolumes":
                    self._set_available(obj)
                if deleted and plural == "persistentvolumeclaims":
                    self._reclaim(obj)
                elif plural == "persistentvolumeclaims":
                    self._attach_all(now)

    def _set_available(self, volume: Obj) -> None:
        """Set the phase of a new volume that no claim is bound to."""
        if not volume["spec"].get("claimRef") and (volume.get("status") or {}).get("phase") == "Pending":
            update(
                self._store,
                kinds.PERSISTENT_VOLUMES,
                volume,
                lambda latest: {**latest, "status": {**(latest.get("status") or {}), "phase": "Available"}},
            )

    # Claims

    def _bind_or_provision(self, claim: Obj, now: datetime) -> None:
        """Bind the claim to a present volume, or start to provision one."""
        uid = claim["metadata"]["uid"]
        if is_bound(claim) or uid in self._provisioning or "deletionTimestamp" in claim["metadata"]:
            return
        volume_name = claim["spec"].get("volumeName")
        if volume_name:
            if (volume := self._volumes.volumes.get(volume_name)) is not None:
                self._bind(claim, volume)
            return
        storage_class = self._volumes.class_of(claim)
        waits = storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        node = self._nodes.get(selected_node(claim))
        if waits and node is None:
            if selected_node(claim):
                self._unselect(claim)
            return
        static_volume = self._static_volume(claim, node)
        if static_volume is not None:
            self._bind(claim, static_volume)
        elif storage_class is not None and storage_class.provisioner != NO_PROVISIONER:
            self._provisioning.add(uid)
            self._at(now + PROVISIONING_DELAY, lambda _at: self._provision(claim, storage_class, node))

    def _unselect(self, claim: Obj) -> None:
        """Give the claim of a node that is gone back to the scheduler, as provisioners do."""

        def unselect(latest: Obj) -> Obj:
            meta = latest["metadata"]
            annotations = {k: v for k, v in (meta.get("annotations") or {}).items() if k != SELECTED_NODE}
            return {**latest, "metadata": {**meta, "annotations": annotations}}

        update(self._store, kinds.PERSISTENT_VOLUME_CLAIMS, claim, unselect)

    def _static_volume(self, claim: Obj, node: Node | None) -> Obj | None:
        nodes = [node] if node is not None else list(self._nodes.values())
        volumes = (self._volumes.find_matching_volume(claim, NodeInfo(n, 0)) for n in nodes)
        return next((volume for volume in volumes if volume is not None), None)

    def _provision(self, claim: Obj, storage_class: StorageClass, node: Node | None) -> None:
        meta = claim["metadata"]
        self._provisioning.discard(meta["uid"])
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
                    **(_zone_affinity(zone) if zone else {}),
                },
            },
        )
        self._bind(claim, volume)

    def _zone_for(self, claim: Obj, storage_class: StorageClass) -> str:
        """The zone of a volume that is bound immediately: one that the class allows, else one with nodes."""
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
        claim_ref = volume["spec"].get("claimRef")
        if claim_ref and claim_ref.get("uid", meta["uid"]) != meta["uid"]:
            return
        bound_volume = update(
            self._store,
            kinds.PERSISTENT_VOLUMES,
            volume,
            lambda latest: {**latest, "spec": {**latest["spec"], "claimRef": reference}, "status": {"phase": "Bound"}},
        )
        if bound_volume is None:
            return
        self._volumes.update("persistentvolumes", bound_volume, deleted=False)
        bound_claim = update(
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
        if bound_claim is not None:
            self._volumes.update("persistentvolumeclaims", bound_claim, deleted=False)

    def _reclaim(self, claim: Obj) -> None:
        """Delete or release the volume of a deleted claim, by its reclaim policy."""
        volume = self._volumes.volumes.get(claim["spec"].get("volumeName") or "")
        if volume is None:
            return
        if volume["spec"].get("persistentVolumeReclaimPolicy", "Retain") == "Delete":
            delete(self._store, kinds.PERSISTENT_VOLUMES, volume)
        else:
            update(
                self._store,
                kinds.PERSISTENT_VOLUMES,
                volume,
                lambda latest: {**latest, "status": {"phase": "Released"}},
            )

    # Pods

    def _handle_pod(self, pod: Obj, now: datetime, *, deleted: bool) -> None:
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        if not deleted and any("ephemeral" in volume for volume in spec.get("volumes") or []):
            self._create_ephemeral_claims(pod)
        if deleted or pod["status"].get("phase") in ENDED:
            if self._claims_of_pod.pop(uid, None) is not None:
                for attachment, pods in list(self._attached.items()):
                    if uid in pods:
                        pods.discard(uid)
                        self._at(now + DETACH_DELAY, partial(self._detach, attachment))
        elif spec.get("nodeName") and uid not in self._claims_of_pod:
            claims = tuple(_claim_names(pod))
            if claims:
                self._claims_of_pod[uid] = (spec["nodeName"], pod["metadata"]["namespace"], claims)
                self._attach(uid, now)

    def _create_ephemeral_claims(self, pod: Obj) -> None:
        """Create the claims of the pod's generic ephemeral volumes; the pod owns them."""
        meta = pod["metadata"]
        latest = self._store.find(kinds.PODS, meta["name"], namespace=meta["namespace"])
        if latest is None or latest["metadata"]["uid"] != meta["uid"] or "deletionTimestamp" in latest["metadata"]:
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
            create(self._store, kinds.PERSISTENT_VOLUME_CLAIMS, claim, meta["namespace"])

    def _attach_all(self, now: datetime) -> None:
        for uid in self._claims_of_pod:
            self._attach(uid, now)

    def _attach(self, uid: str, now: datetime) -> None:
        """Attach the volumes of the pod's bound claims to its node."""
        node, namespace, claims = self._claims_of_pod[uid]
        for name in claims:
            claim = self._volumes.claims.get((namespace, name))
            if claim is None or not is_bound(claim):
                continue
            attachment = (node, claim["spec"]["volumeName"])
            pods = self._attached.setdefault(attachment, set())
            if not pods:
                self._at(now + ATTACH_DELAY, partial(self._create_attachment, attachment))
            pods.add(uid)

    def _create_attachment(self, attachment: Attachment, _now: datetime) -> None:
        node, name = attachment
        volume = self._volumes.volumes.get(name)
        driver = driver_of(volume) if volume else ""
        object_name = _attachment_name(attachment)
        attached = self._store.find(kinds.VOLUME_ATTACHMENTS, object_name)
        if not driver or not self._attached.get(attachment) or attached:
            return
        created = self._store.create(
            kinds.VOLUME_ATTACHMENTS,
            {
                "metadata": {"name": object_name},
                "spec": {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": name}},
            },
        )
        update(self._store, kinds.VOLUME_ATTACHMENTS, created, lambda latest: {**latest, "status": {"attached": True}})

    def _detach(self, attachment: Attachment, _now: datetime) -> None:
        if self._attached.get(attachment):
            return
        self._attached.pop(attachment, None)
        obj = self._store.find(kinds.VOLUME_ATTACHMENTS, _attachment_name(attachment))
        if obj is not None:
            delete(self._store, kinds.VOLUME_ATTACHMENTS, obj)


def _claim_names(pod: Obj) -> list[str]:
    names: list[str] = []
    for volume in pod["spec"].get("volumes") or []:
        if claim := volume.get("persistentVolumeClaim"):
            names.append(claim["claimName"])
        elif volume.get("ephemeral"):
            names.append(f"{pod['metadata']['name']}-{volume['name']}")
    return names


def _zone_affinity(zone: str) -> Obj:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:17]


def _attachment_name(attachment: Attachment) -> str:
    return f"csi-{hashlib.sha256('/'.join(attachment).encode()).hexdigest()}"
