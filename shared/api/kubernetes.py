"""Kubernetes' own kinds (storage is in ``shared.api.storage``), reduced to the fields that decisions read.

The field names and their defaults are the API's (v1.36). What the API server defaults is optional, also in manifests.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from shared.api import admission_rules
from shared.api.containers import (
    Container,
    ContainerStatus,
    ResourceRequirements,
    are_as_requested,
    counted_containers,
    counted_pod_resources,
)
from shared.api.meta import (
    LABEL_KEY,
    LABEL_VALUE,
    ApiStruct,
    Condition,
    LabelSelector,
    ObjectMeta,
    ObjectRef,
    RawQuantities,
    describe,
    namespaced_key,
    namespaced_ref,
)
from shared.api.pod_references import PodResourceClaim, PodSchedulingGroup, SchedulingGate, WorkloadReference
from shared.base.struct import with_fields

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")
"""Of node selector requirements, in the order in which they are listed in messages; Gte and Lte are Karpenter's."""
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
"""Of taints."""
MAX_MIN_VALUES = 50
RESIZE_PENDING, INFEASIBLE = "PodResizePending", "Infeasible"
"""The condition of a pod whose resize the kubelet hasn't accepted, and its reason if the node can never hold it."""


class Taint(ApiStruct):
    """Repels pods that don't tolerate it."""

    key: Annotated[str, describe("The taint's key.", minLength=1, **LABEL_KEY)]
    effect: Annotated[str, describe("What happens to pods that don't tolerate the taint.", enum=EFFECTS)]
    value: Annotated[str, describe("The taint's value.", **LABEL_VALUE)] = ""
    time_added: Annotated[datetime | None, describe("When a NoExecute taint was added.")] = None


class Toleration(ApiStruct):
    """Lets a pod onto nodes with matching taints; an empty key with Exists tolerates all."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class LabelRequirement(ApiStruct):
    """``key operator values``: In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte."""

    key: Annotated[str, describe("The label.", rules=admission_rules.REQUIREMENT_KEY, **LABEL_KEY)]
    operator: Annotated[str, describe("The operator of the requirement.", enum=OPERATORS)]
    values: Annotated[
        list[str],
        describe(
            "In and NotIn need at least one; Gt, Lt, Gte and Lte need exactly one, an integer; Exists and "
            "DoesNotExist take none.",
            each=LABEL_VALUE,
        ),
    ] = []


class NodeSelectorRequirement(LabelRequirement):
    """``key operator values``: In, NotIn, Exists, DoesNotExist, Gt, Lt; pools have Gte, Lte and minValues too."""

    min_values: Annotated[
        int | None,
        describe(
            "The minimum number of different values among the instance types of a launch.",
            minimum=1,
            maximum=MAX_MIN_VALUES,
        ),
    ] = None


class NodeSelectorTerm(ApiStruct):
    """All its expressions and fields must hold; a term without any matches nothing."""

    match_expressions: list[NodeSelectorRequirement] = []
    match_fields: list[NodeSelectorRequirement] = []


class NodeSelector(ApiStruct):
    """Any one of its terms must hold."""

    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredSchedulingTerm(ApiStruct):
    """A node affinity that is worth ``weight``."""

    weight: int = 1
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(ApiStruct):
    """Required and preferred node affinity of a pod."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredSchedulingTerm] = []


class PodAffinityTerm(ApiStruct):
    """Selects pods to be co-located with, or away from, in a domain of ``topology_key``."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(ApiStruct):
    """A pod affinity that is worth ``weight``."""

    weight: int = 1
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(ApiStruct):
    """Affinity or anti-affinity to other pods."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] = []
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] = []


class Affinity(ApiStruct):
    """A pod's affinities."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(ApiStruct):
    """How evenly matching pods are spread over the domains of ``topology_key``."""

    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: list[str] = []


class PersistentVolumeClaimSource(ApiStruct):
    """A volume that names its claim."""

    claim_name: str = ""


class PersistentVolumeClaimSpec(ApiStruct):
    """What a volume claim asks for."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: list[str] = []
    resources: ResourceRequirements = ResourceRequirements()
    selector: LabelSelector | None = None
    volume_attributes_class_name: str | None = None
    volume_mode: str = "Filesystem"


class EphemeralTemplate(ApiStruct):
    """The claim template of a generic ephemeral volume."""

    spec: PersistentVolumeClaimSpec | None = None


class EphemeralVolumeSource(ApiStruct):
    """A volume whose claim is created with the pod: ``<pod>-<volume>``."""

    volume_claim_template: EphemeralTemplate | None = None


class EmptyDir(ApiStruct):
    """A folder of the node, or of its memory, that lives as long as the pod."""

    medium: str = ""


class HostPath(ApiStruct):
    """A path of the node."""

    path: str = ""


class Volume(ApiStruct):
    """A pod's volume, where it ties the pod to nodes."""

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    empty_dir: EmptyDir | None = None
    host_path: HostPath | None = None

    @property
    def ties_to_nodes(self) -> bool:
        """Whether anything is known of it but its name: ConfigMaps, Secrets and tokens are on every node."""
        return bool(self.persistent_volume_claim or self.ephemeral or self.empty_dir or self.host_path)

    @property
    def is_local(self) -> bool:
        """Whether data on the node would be lost with the pod."""
        return bool(self.host_path or (self.empty_dir and self.empty_dir.medium != "Memory"))


class PodSpec(ApiStruct):
    """The fields of a pod that scheduling reads."""

    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: RawQuantities = {}
    resources: ResourceRequirements | None = None
    volumes: list[Volume] = []
    priority: int | None = None
    priority_class_name: str = ""
    runtime_class_name: str = ""
    scheduler_name: str = "default-scheduler"
    scheduling_gates: list[SchedulingGate] = []
    host_network: bool = False
    termination_grace_period_seconds: int | None = None
    resource_claims: list[PodResourceClaim] = []
    scheduling_group: PodSchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None


class PodStatus(ApiStruct):
    """The fields of a pod's status that decisions read."""

    phase: str = "Pending"
    conditions: list[Condition] = []
    nominated_node_name: str = ""
    start_time: datetime | None = None
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    resources: ResourceRequirements | None = None
    allocated_resources: RawQuantities = {}


def _is_as_requested(spec: PodSpec, status: PodStatus, statuses: list[ContainerStatus]) -> bool:
    """Whether containers certainly have what they request: cheap, as it is so for nearly all of the cluster's pods."""
    are_silent = all(s.resources is None and not s.allocated_resources for s in statuses)
    containers = [*spec.containers, *spec.init_containers]
    return status.resources is None and (are_silent or are_as_requested(containers, statuses))


def _counted_spec(spec: PodSpec, status: PodStatus) -> PodSpec:
    """The spec with the requests that count for the pod's node; the same object if nothing is being resized."""
    stuck = any((c.type, c.status, c.reason) == (RESIZE_PENDING, "True", INFEASIBLE) for c in status.conditions)
    containers = counted_containers(spec.containers, status.container_statuses, is_infeasible=stuck)
    init = counted_containers(spec.init_containers, status.init_container_statuses, is_infeasible=stuck)
    resources = spec.resources
    if resources is not None and status.resources is not None:
        resources = counted_pod_resources(resources, status.resources, status.allocated_resources, is_infeasible=stuck)
    if containers is spec.containers and init is spec.init_containers and resources is spec.resources:
        return spec
    return with_fields(spec, containers=containers, init_containers=init, resources=resources)


class Pod(ApiStruct):
    """A pod. Its requests are those that count for its node: statuses of resources are read once, and dropped."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
    kind: str = "Pod"
    api_version: str = "v1"

    def __post_init__(self) -> None:
        status = self.status
        statuses = [*status.container_statuses, *status.init_container_statuses]
        if not statuses and status.resources is None:
            return
        if not _is_as_requested(self.spec, status, statuses):
            msgspec.structs.force_setattr(self, "spec", _counted_spec(self.spec, status))
        read = with_fields(
            status, container_statuses=[], init_container_statuses=[], resources=None, allocated_resources={}
        )
        msgspec.structs.force_setattr(self, "status", read)

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return namespaced_key(self.metadata)

    @property
    def ref(self) -> ObjectRef:
        """For events and messages."""
        return namespaced_ref(self.api_version, self.kind, self.metadata)


class NodeSpec(ApiStruct):
    """The fields of a node that decisions read."""

    provider_id: str = msgspec.field(default="", name="providerID")
    taints: list[Taint] = []
    unschedulable: bool = False


class NodeSystemInfo(ApiStruct):
    """The node info that the kubelet reports."""

    architecture: str = ""
    boot_id: str = msgspec.field(default="", name="bootID")
    kubelet_version: str = ""
    operating_system: str = ""


class NodeStatus(ApiStruct):
    """A node's size and health."""

    capacity: RawQuantities = {}
    allocatable: RawQuantities = {}
    conditions: list[Condition] = []
    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(ApiStruct):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
    kind: str = "Node"
    api_version: str = "v1"

    @property
    def ref(self) -> ObjectRef:
        """For events and messages."""
        return ObjectRef(api_version=self.api_version, kind=self.kind, name=self.metadata.name, uid=self.metadata.uid)


class PodTemplate(ApiStruct):
    """The template of a workload's pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class Namespace(ApiStruct):
    """A namespace; its labels are what namespaceSelectors see."""

    metadata: ObjectMeta = ObjectMeta()
    kind: str = "Namespace"
    api_version: str = "v1"


class PodDisruptionBudgetSpec(ApiStruct):
    """The selected pods, and how many may be unavailable."""

    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: Literal["", "IfHealthyBudget", "AlwaysAllow"] = ""


class PodDisruptionBudgetStatus(ApiStruct):
    """How many pods may be evicted now, and how many of the pods are healthy and should be."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    observed_generation: int = 0


class PodDisruptionBudget(ApiStruct):
    """How many of the selected pods may be unavailable at once."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
    kind: str = "PodDisruptionBudget"
    api_version: str = "policy/v1"
