"""EC2NodeClass of karpenter.k8s.aws/v1: what an instance is made of on AWS."""

from __future__ import annotations

from typing import Any

import msgspec

from shared.api.meta import Condition, ObjectMeta, ObjectRef, RawQuantities, Struct

API_VERSION = "karpenter.k8s.aws/v1"
KIND = "EC2NodeClass"

ALIAS_FAMILIES = {
    "al2": "AL2",
    "al2023": "AL2023",
    "bottlerocket": "Bottlerocket",
    "windows2019": "Windows2019",
    "windows2022": "Windows2022",
    "windows2025": "Windows2025",
}
"""The family of an alias (the part before @) to the family of images."""
AMI_FAMILIES = (*ALIAS_FAMILIES.values(), "Custom")
VOLUME_TYPES = ("gp3", "gp2", "io1", "io2", "st1", "sc1", "standard")
INSTANCE_STORE_POLICIES = ("RAID0",)
MATCH_CRITERIA = ("open", "targeted")
METADATA_CHOICES = {
    "httpEndpoint": ("enabled", "disabled"),
    "httpProtocolIPv6": ("enabled", "disabled"),
    "httpTokens": ("required", "optional"),
}
RESERVABLE = ("cpu", "memory", "ephemeral-storage", "pid")
EVICTION_SIGNALS = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
)
MAX_TERMS = 30
MAX_DEVICES = 50


class SubnetSelectorTerm(Struct):
    """Subnets by tags (an empty or ``*`` value means: the tag is there) or by id; terms are joined by or."""

    tags: dict[str, str] = {}
    id: str = ""


class SecurityGroupSelectorTerm(Struct):
    """Security groups by tags, id or name; terms are joined by or."""

    tags: dict[str, str] = {}
    id: str = ""
    name: str = ""


class AMISelectorTerm(Struct):
    """Images by alias (``al2023@latest``), tags, id, name, owner or SSM parameter; terms are joined by or."""

    alias: str = ""
    tags: dict[str, str] = {}
    id: str = ""
    name: str = ""
    owner: str = ""
    ssm_parameter: str = ""


class CapacityReservationSelectorTerm(Struct):
    """On-demand capacity reservations by tags, id or owner."""

    tags: dict[str, str] = {}
    id: str = ""
    owner_id: str = msgspec.field(default="", name="ownerID")
    instance_match_criteria: str = ""


class Kubelet(Struct):
    """Settings of the kubelet that change what fits on a node, or that user data must carry."""

    max_pods: int | None = None
    pods_per_core: int | None = None
    system_reserved: RawQuantities = {}
    kube_reserved: RawQuantities = {}
    eviction_hard: dict[str, str] = {}
    eviction_soft: dict[str, str] = {}
    eviction_soft_grace_period: dict[str, str] = {}
    eviction_max_pod_grace_period: int | None = None
    image_gc_high_threshold_percent: int | None = msgspec.field(default=None, name="imageGCHighThresholdPercent")
    image_gc_low_threshold_percent: int | None = msgspec.field(default=None, name="imageGCLowThresholdPercent")
    cpu_cfs_quota: bool | None = msgspec.field(default=None, name="cpuCFSQuota")
    cluster_dns: list[str] = msgspec.field(default_factory=list, name="clusterDNS")


class BlockDevice(Struct):
    """An EBS volume; ``volume_size`` is a quantity ("20Gi")."""

    delete_on_termination: bool | None = None
    encrypted: bool | None = None
    iops: int | None = None
    kms_key_id: str = msgspec.field(default="", name="kmsKeyID")
    snapshot_id: str = msgspec.field(default="", name="snapshotID")
    throughput: int | None = None
    volume_initialization_rate: int | None = None
    volume_size: str | int | float | None = None
    volume_type: str = ""


class BlockDeviceMapping(Struct):
    """A device and its volume; ``root_volume`` marks the one that pods' ephemeral storage comes from."""

    device_name: str = ""
    root_volume: bool = False
    ebs: BlockDevice | None = None


class MetadataOptions(Struct):
    """How the instance metadata service answers; the defaults keep pods away from it."""

    http_endpoint: str = "enabled"
    http_protocol_ipv6: str = msgspec.field(default="disabled", name="httpProtocolIPv6")
    http_put_response_hop_limit: int = 1
    http_tokens: str = "required"


class EC2NodeClassSpec(Struct):
    """What the user asks of the instances."""

    subnet_selector_terms: list[SubnetSelectorTerm] = []
    security_group_selector_terms: list[SecurityGroupSelectorTerm] = []
    capacity_reservation_selector_terms: list[CapacityReservationSelectorTerm] = []
    associate_public_ip_address: bool | None = msgspec.field(default=None, name="associatePublicIPAddress")
    ami_selector_terms: list[AMISelectorTerm] = []
    ami_family: str = ""
    user_data: str = ""
    role: str = ""
    instance_profile: str = ""
    tags: dict[str, str] = {}
    kubelet: Kubelet | None = None
    block_device_mappings: list[BlockDeviceMapping] = []
    instance_store_policy: str = ""
    detailed_monitoring: bool = False
    metadata_options: MetadataOptions = MetadataOptions()
    context: str = ""
    placement_group_selector: dict[str, Any] | None = None
    network_interfaces: list[dict[str, Any]] = []
    connection_tracking: dict[str, Any] | None = None
    cpu_options: dict[str, Any] | None = None


class ResolvedSubnet(Struct):
    """A subnet that the terms select."""

    id: str
    zone: str = ""
    zone_id: str = msgspec.field(default="", name="zoneID")


class ResolvedSecurityGroup(Struct):
    """A security group that the terms select."""

    id: str
    name: str = ""


class AMIRequirement(Struct):
    """Which instance types an image is for."""

    key: str
    operator: str
    values: list[str] = []


class ResolvedAMI(Struct):
    """An image that the terms select, and for which instance types."""

    id: str
    name: str = ""
    requirements: list[AMIRequirement] = []


class EC2NodeClassStatus(Struct):
    """What was found on AWS."""

    subnets: list[ResolvedSubnet] = []
    security_groups: list[ResolvedSecurityGroup] = []
    amis: list[ResolvedAMI] = []
    instance_profile: str = ""
    conditions: list[Condition] = []


class EC2NodeClass(Struct):
    """A node class. One converted from an AWSNodeTemplate keeps that object's apiVersion and kind."""

    metadata: ObjectMeta = ObjectMeta()
    spec: EC2NodeClassSpec = EC2NodeClassSpec()
    status: EC2NodeClassStatus = EC2NodeClassStatus()
    kind: str = KIND
    api_version: str = API_VERSION

    @property
    def name(self) -> str:
        """The class's name."""
        return self.metadata.name

    @property
    def ref(self) -> ObjectRef:
        """The object as the user wrote it."""
        return ObjectRef(api_version=self.api_version, kind=self.kind, name=self.name, uid=self.metadata.uid)
