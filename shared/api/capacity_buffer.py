"""CapacityBuffer of autoscaling.x-k8s.io: room that is kept on nodes before pods need it.

The upstream API of Cluster Autoscaler and Karpenter (docs/facts/capacity-buffers-and-overlays.md), with the two kinds
of objects that a buffer names: a PodTemplate, or a workload whose template and replicas count.
"""

from __future__ import annotations

from typing import Annotated

from shared.api.kubernetes import PodTemplate
from shared.api.meta import (
    ApiStruct,
    Condition,
    NamedObject,
    ObjectRef,
    RawQuantities,
    describe,
    namespaced_key,
    namespaced_ref,
)

API_VERSION = "autoscaling.x-k8s.io/v1beta1"
V1ALPHA1 = "autoscaling.x-k8s.io/v1alpha1"
"""The same fields under an older version; clusters may serve only this one."""
KIND = "CapacityBuffer"

ACTIVE_CAPACITY = "buffer.x-k8s.io/active-capacity"
"""The only strategy that Tenon provides; buffers with another are left alone."""
SCALABLE_KINDS = ("Deployment", "StatefulSet", "ReplicaSet")
"""Kinds of the API group apps that a buffer may name."""

MAX_CHUNKS = 10_000
"""Chunks of one buffer at most: as many pods as a decision handles within seconds."""

READY_FOR_PROVISIONING = "ReadyForProvisioning"
"""Condition: the template was found and the number of chunks is known."""
PROVISIONING = "Provisioning"
"""Condition: all chunks fit on nodes that exist now."""

_TEMPLATE_NEEDS_SIZE = (
    "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
    "podTemplateRef needs replicas or limits",
)
_ONE_REF = (
    "!(has(self.podTemplateRef) && has(self.scalableRef))",
    "podTemplateRef and scalableRef can't both be given",
)


class LocalObjectRef(ApiStruct):
    """The name of an object of the same namespace."""

    name: Annotated[str, describe("The object's name.", required=True, minLength=1)] = ""


class ScalableRef(ApiStruct):
    """A workload of the same namespace."""

    api_group: Annotated[str, describe("The API group of the workload: apps.")] = ""
    kind: Annotated[str, describe("Deployment, StatefulSet or ReplicaSet.", required=True, minLength=1)] = ""
    name: Annotated[str, describe("The workload's name.", required=True, minLength=1)] = ""


class CapacityBufferSpec(ApiStruct):
    """The shape and the number of the buffer's chunks; a chunk is the room of one pod."""

    provisioning_strategy: Annotated[
        str, describe("How the room is kept. Buffers with another strategy are left alone.", default=True)
    ] = ACTIVE_CAPACITY
    pod_template_ref: Annotated[
        LocalObjectRef | None, describe("The PodTemplate whose pods the room is for; needs replicas or limits.")
    ] = None
    scalable_ref: Annotated[
        ScalableRef | None, describe("The workload whose pods the room is for; instead of podTemplateRef.")
    ] = None
    replicas: Annotated[int | None, describe("The number of chunks; with percentage the smaller.", minimum=0)] = None
    percentage: Annotated[
        int | None, describe("Chunks as a percentage of the workload's replicas, rounded up.", minimum=0)
    ] = None
    limits: Annotated[
        RawQuantities | None,
        describe("What all chunks together may request; alone, there are as many chunks as fit."),
    ] = None


class CapacityBufferStatus(ApiStruct):
    """What was resolved, and whether the room is there."""

    pod_template_ref: Annotated[LocalObjectRef | None, describe("The PodTemplate that was used.")] = None
    pod_template_generation: Annotated[int | None, describe("The generation of that PodTemplate.")] = None
    replicas: Annotated[int | None, describe("The number of chunks that are kept.")] = None
    provisioning_strategy: Annotated[str | None, describe("The strategy that is followed.")] = None
    conditions: Annotated[
        list[Condition],
        describe(
            "ReadyForProvisioning: the template was found. Provisioning: all chunks fit on nodes that exist.",
        ),
    ] = []


class CapacityBuffer(NamedObject):
    """Room for pods that don't exist yet: it is kept on nodes, used by whatever pod needs it, and bought again."""

    spec: Annotated[
        CapacityBufferSpec,
        describe("The room to keep.", required=True, rules=(_TEMPLATE_NEEDS_SIZE, _ONE_REF)),
    ] = CapacityBufferSpec()
    status: Annotated[CapacityBufferStatus, describe("The state of the buffer.")] = CapacityBufferStatus()
    kind: str = KIND
    api_version: str = API_VERSION

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return namespaced_key(self.metadata)

    @property
    def ref(self) -> ObjectRef:
        """For events and messages."""
        return namespaced_ref(self.api_version, self.kind, self.metadata)

    @property
    def is_active(self) -> bool:
        """Whether Tenon provides the buffer: its strategy is active capacity, and it isn't being deleted."""
        return self.spec.provisioning_strategy == ACTIVE_CAPACITY and self.metadata.deletion_timestamp is None


class StoredPodTemplate(NamedObject):
    """A PodTemplate (core/v1), which is only a template under a name."""

    template: PodTemplate = PodTemplate()


class ScalableSpec(ApiStruct):
    """The replicas and the template of a workload."""

    replicas: int = 1
    template: PodTemplate = PodTemplate()


class Scalable(NamedObject):
    """A Deployment, StatefulSet or ReplicaSet."""

    spec: ScalableSpec = ScalableSpec()
