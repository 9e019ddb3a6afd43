"""Kubernetes' kinds of storage, reduced to the fields that decisions read: volumes, claims, classes, CSI nodes.

As in ``shared.api.kubernetes``: field names and defaults are the API's (v1.36).
"""

from __future__ import annotations

import msgspec

from shared.api.kubernetes import NodeSelector, PersistentVolumeClaimSpec
from shared.api.meta import ApiStruct, ObjectMeta, RawQuantities


class PersistentVolumeClaimStatus(ApiStruct):
    """Pending, Bound or Lost."""

    phase: str = "Pending"


class PersistentVolumeClaim(ApiStruct):
    """A claim for storage."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()
    kind: str = "PersistentVolumeClaim"
    api_version: str = "v1"


class VolumeNodeAffinity(ApiStruct):
    """The nodes that can access a volume."""

    required: NodeSelector | None = None


class CSIVolumeSource(ApiStruct):
    """A volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""


class EBSVolumeSource(ApiStruct):
    """An in-tree EBS volume; counts as the EBS CSI driver's."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class ClaimReference(ApiStruct):
    """The claim that a volume is bound to, or reserved for while ``uid`` is empty."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class PersistentVolumeSpec(ApiStruct):
    """The spec of a volume."""

    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIVolumeSource | None = None
    aws_elastic_block_store: EBSVolumeSource | None = None
    storage_class_name: str = ""
    capacity: RawQuantities = {}
    access_modes: list[str] = []
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str | None = None
    claim_ref: ClaimReference | None = None


class PersistentVolumeStatus(ApiStruct):
    """Pending, Available, Bound, Released or Failed."""

    phase: str = ""


class PersistentVolume(ApiStruct):
    """A volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()
    kind: str = "PersistentVolume"
    api_version: str = "v1"


class TopologyLabelRequirement(ApiStruct):
    """A topology key and the values in which volumes may be created."""

    key: str
    values: list[str] = []


class TopologySelectorTerm(ApiStruct):
    """All its expressions must hold."""

    match_label_expressions: list[TopologyLabelRequirement] = []


class StorageClass(ApiStruct):
    """How volumes are provisioned, and in which topology."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[TopologySelectorTerm] = []
    kind: str = "StorageClass"
    api_version: str = "storage.k8s.io/v1"


class VolumeCount(ApiStruct):
    """The maximum number of a driver's volumes on a node."""

    count: int | None = None


class CSINodeDriver(ApiStruct):
    """A CSI driver on a node."""

    name: str = ""
    allocatable: VolumeCount | None = None


class CSINodeSpec(ApiStruct):
    """The drivers on a node."""

    drivers: list[CSINodeDriver] = []


class CSINode(ApiStruct):
    """The CSI drivers of the node of the same name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()
    kind: str = "CSINode"
    api_version: str = "storage.k8s.io/v1"


class CSIDriverSpec(ApiStruct):
    """Whether kube-scheduler, from 1.37 on, keeps pods with the driver's volumes off nodes that lack the driver."""

    prevent_pod_scheduling_if_missing: bool = False


class CSIDriver(ApiStruct):
    """A CSI driver, by the name that volumes and CSINodes give it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()
    kind: str = "CSIDriver"
    api_version: str = "storage.k8s.io/v1"


class VolumeAttachmentSource(ApiStruct):
    """The attached volume."""

    persistent_volume_name: str = ""


class VolumeAttachmentSpec(ApiStruct):
    """Which volume is attached to which node."""

    node_name: str = ""
    attacher: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(ApiStruct):
    """A volume attached to a node; a drained node waits until it is detached."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    kind: str = "VolumeAttachment"
    api_version: str = "storage.k8s.io/v1"
