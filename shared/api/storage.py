"""Kubernetes' kinds of storage, reduced to the fields that decisions read: volumes, claims, classes, CSI nodes.

As in ``shared.api.kubernetes``: field names and defaults are the API's (v1.36).
"""

from __future__ import annotations

import msgspec

from shared.api.kubernetes import NodeSelector, PersistentVolumeClaimSpec
from shared.api.meta import ObjectMeta, Struct


class PersistentVolumeClaimStatus(Struct):
    """Pending, Bound or Lost."""

    phase: str = "Pending"


class PersistentVolumeClaim(Struct):
    """A claim on storage."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()
    kind: str = "PersistentVolumeClaim"
    api_version: str = "v1"


class VolumeNodeAffinity(Struct):
    """Where a volume can be reached from."""

    required: NodeSelector | None = None


class CSIVolumeSource(Struct):
    """A volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""


class EBSVolumeSource(Struct):
    """An in-tree EBS volume; counts as the EBS CSI driver's."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class PersistentVolumeSpec(Struct):
    """A volume and where it is."""

    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIVolumeSource | None = None
    aws_elastic_block_store: EBSVolumeSource | None = None
    storage_class_name: str = ""


class PersistentVolume(Struct):
    """A volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    kind: str = "PersistentVolume"
    api_version: str = "v1"


class TopologyLabelRequirement(Struct):
    """A key and the values volumes may be made for."""

    key: str
    values: list[str] = []


class TopologySelectorTerm(Struct):
    """All its expressions must hold."""

    match_label_expressions: list[TopologyLabelRequirement] = []


class StorageClass(Struct):
    """How volumes are made, and where."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[TopologySelectorTerm] = []
    kind: str = "StorageClass"
    api_version: str = "storage.k8s.io/v1"


class VolumeCount(Struct):
    """How many volumes of a driver a node takes."""

    count: int | None = None


class CSINodeDriver(Struct):
    """A CSI driver on a node."""

    name: str = ""
    allocatable: VolumeCount | None = None


class CSINodeSpec(Struct):
    """The drivers on a node."""

    drivers: list[CSINodeDriver] = []


class CSINode(Struct):
    """What a node's CSI drivers can attach; it has the node's name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()
    kind: str = "CSINode"
    api_version: str = "storage.k8s.io/v1"


class VolumeAttachmentSource(Struct):
    """The volume that is attached."""

    persistent_volume_name: str = ""


class VolumeAttachmentSpec(Struct):
    """Which volume is attached to which node."""

    node_name: str = ""
    attacher: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(Struct):
    """A volume on a node; the node waits for it to go before its instance does."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    kind: str = "VolumeAttachment"
    api_version: str = "storage.k8s.io/v1"
