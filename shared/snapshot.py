"""The cluster's objects at one moment: the input of scheduling, disruption and the command line.

A plain value; ``shared.cluster.snapshot_reader`` reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from shared.api.pod_references import POD_SET_MARK
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from shared.api.capacity_buffer import CapacityBuffer, Scalable, StoredPodTemplate
    from shared.api.daemon_set import DaemonSet
    from shared.api.hourly_limits import LastHour
    from shared.api.kubernetes import Namespace, Node, Pod, PodDisruptionBudget
    from shared.api.limit_range import LimitRange
    from shared.api.meta import ObjectRef
    from shared.api.node_overlay import NodeOverlay
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass
    from shared.api.nodepool import NodePool
    from shared.api.pause import Pause
    from shared.api.pod_group import PodGroup
    from shared.api.pod_references import PodGroupKey
    from shared.api.provisioning_request import ProvisioningRequest
    from shared.api.quantity import Resources
    from shared.api.storage import (
        CSIDriver,
        CSINode,
        PersistentVolume,
        PersistentVolumeClaim,
        StorageClass,
        VolumeAttachment,
    )


T = TypeVar("T")


class InvalidObject(Struct, kw_only=True):
    """An object that can't be used, and its problems: sentences with the field, the value and what is allowed.

    A superseded one is valid by itself: an object of a newer kind has its name and is used instead.
    """

    ref: ObjectRef
    problems: tuple[str, ...]
    is_superseded: bool = False


class BufferObjects(Struct, kw_only=True):
    """A CapacityBuffer with the PodTemplate or workload that it names; both are None if that doesn't exist.

    It may stand for the pods of a ProvisioningRequest's ``pod_set`` (its number) that don't exist yet.
    """

    buffer: CapacityBuffer
    pod_template: StoredPodTemplate | None = None
    workload: Scalable | None = None
    request: ProvisioningRequest | None = None
    pod_set: int = 0

    @property
    def key(self) -> str:
        """``namespace/name``, for a request ``namespace/name@pod set``: what its chunks' names begin with."""
        return self.buffer.key if self.request is None else f"{self.buffer.key}{POD_SET_MARK}{self.pod_set}"


class Snapshot(Struct, kw_only=True, dict=True):
    """All objects that decisions use.

    NodePools, EC2NodeClasses and NodeOverlays are the valid ones, legacy kinds converted; the others are ``invalid``.
    NodePools and NodeClaims of other provisioners are left out, their nodes are unmanaged; ``foreign_provider_ids`` are
    their instances, and ``foreign_pools`` say by NodePool who launches its nodes. ``capacity_buffers`` are those that
    Tenon provides, and the room that ProvisioningRequests want. ``taken_at`` is the time (UTC) before the first object
    was read. ``pause`` is the whole cluster's; those of NodePools are annotations. ``cluster_limits`` hold for the
    nodes of all NodePools together. ``shifted_zones`` are the zones (by name) that traffic is shifted away from, each
    with the end of its shift: nothing is launched or disrupted there. ``last_hour`` is what NodePools launched and
    removed, for their hourly limits. ``growth`` are pods that are expected: nodes that are launched for pods have room
    for them too. ``pod_groups`` are the PodGroups of pods that wait for a node, and Kubernetes' own ones of pods that
    run, and one for each ProvisioningRequest: its pods that don't exist yet.
    """

    taken_at: datetime
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    node_claims: tuple[NodeClaim, ...] = ()
    node_pools: tuple[NodePool, ...] = ()
    node_classes: tuple[EC2NodeClass, ...] = ()
    node_overlays: tuple[NodeOverlay, ...] = ()
    daemon_sets: tuple[DaemonSet, ...] = ()
    limit_ranges: tuple[LimitRange, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    persistent_volumes: tuple[PersistentVolume, ...] = ()
    persistent_volume_claims: tuple[PersistentVolumeClaim, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    csi_nodes: tuple[CSINode, ...] = ()
    csi_drivers: tuple[CSIDriver, ...] = ()
    volume_attachments: tuple[VolumeAttachment, ...] = ()
    pod_disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
    capacity_buffers: tuple[BufferObjects, ...] = ()
    invalid: tuple[InvalidObject, ...] = ()
    foreign_provider_ids: frozenset[str] = frozenset()
    foreign_pools: Mapping[str, str] = {}
    growth: tuple[Pod, ...] = ()
    pod_groups: Mapping[PodGroupKey, PodGroup] = {}
    pause: Pause | None = None
    cluster_limits: Resources = {}
    shifted_zones: Mapping[str, datetime] = {}
    last_hour: LastHour = {}

    def derive(self, name: str, make: Callable[[], T]) -> T:
        """A value that follows from the snapshot alone, as it was made the first time: simulations are thousands.

        A changed copy of the snapshot starts without such values.
        """
        derived = self.__dict__
        if name not in derived:
            derived[name] = make()
        return cast("T", derived[name])
