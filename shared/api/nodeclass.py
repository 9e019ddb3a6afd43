"""EC2NodeClass of karpenter.k8s.aws/v1: what an instance is made of on AWS."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from shared.api.meta import Condition, ObjectMeta, ObjectRef, RawQuantities, Struct, describe

API_VERSION = "karpenter.k8s.aws/v1"
KIND = "EC2NodeClass"

SUBNETS_READY = "SubnetsReady"
SECURITY_GROUPS_READY = "SecurityGroupsReady"
AMIS_READY = "AMIsReady"
INSTANCE_PROFILE_READY = "InstanceProfileReady"
CAPACITY_RESERVATIONS_READY = "CapacityReservationsReady"
"""Set only where the class selects capacity reservations."""
VALIDATION_SUCCEEDED = "ValidationSucceeded"
READY = "Ready"
"""Types of conditions."""

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

    tags: Annotated[dict[str, str], describe("Tags that the subnet has; * is any value.", maxProperties=20)] = {}
    id: Annotated[str, describe("The subnet's id; stands alone.", pattern="^subnet-[0-9a-z]+$")] = ""


class SecurityGroupSelectorTerm(Struct):
    """Security groups by tags, id or name; terms are joined by or."""

    tags: Annotated[dict[str, str], describe("Tags that the group has; * is any value.", maxProperties=20)] = {}
    id: Annotated[str, describe("The group's id; stands alone.", pattern="^sg-[0-9a-z]+$")] = ""
    name: Annotated[str, describe("The group's name (not its Name tag).")] = ""


class AMISelectorTerm(Struct):
    """Images by alias (``al2023@latest``), tags, id, name, owner or SSM parameter; terms are joined by or."""

    alias: Annotated[
        str,
        describe(
            "An EKS-optimised image: family@version, such as al2023@latest; stands alone.",
            maxLength=30,
            pattern=f"^({'|'.join(ALIAS_FAMILIES)})@.+$",
        ),
    ] = ""
    tags: Annotated[dict[str, str], describe("Tags that the image has; * is any value.", maxProperties=20)] = {}
    id: Annotated[str, describe("The image's id; stands alone.", pattern="^ami-[0-9a-z]+$")] = ""
    name: Annotated[str, describe("The image's name (not its Name tag); * stands for any text.")] = ""
    owner: Annotated[str, describe("Whose image it is: an account's id, self or amazon.")] = ""
    ssm_parameter: Annotated[str, describe("The SSM parameter that holds the image's id; stands alone.")] = ""


class CapacityReservationSelectorTerm(Struct):
    """On-demand capacity reservations by tags, id or owner."""

    tags: Annotated[dict[str, str], describe("Tags that the reservation has; * is any value.", maxProperties=20)] = {}
    id: Annotated[str, describe("The reservation's id; stands alone.", pattern="^cr-[0-9a-z]+$")] = ""
    owner_id: Annotated[str, describe("Whose reservation it is: an account's id.", pattern="^[0-9]{12}$")] = (
        msgspec.field(default="", name="ownerID")
    )
    instance_match_criteria: Annotated[
        str, describe("Which launches the reservation serves by itself.", enum=MATCH_CRITERIA)
    ] = ""


class Kubelet(Struct):
    """Settings of the kubelet that change what fits on a node, or that user data must carry."""

    max_pods: Annotated[int | None, describe("How many pods a node takes.", minimum=0)] = None
    pods_per_core: Annotated[int | None, describe("How many pods a node takes for each core.", minimum=0)] = None
    system_reserved: Annotated[RawQuantities, describe("What the system keeps for itself.")] = {}
    kube_reserved: Annotated[RawQuantities, describe("What the kubelet and the runtime keep for themselves.")] = {}
    eviction_hard: Annotated[dict[str, str], describe("Signal to quantity or percentage: pods go at once.")] = {}
    eviction_soft: Annotated[
        dict[str, str], describe("Signal to quantity or percentage: pods go after the grace period.")
    ] = {}
    eviction_soft_grace_period: Annotated[dict[str, str], describe("Signal to the soft grace period.")] = {}
    eviction_max_pod_grace_period: Annotated[
        int | None, describe("The longest grace period of a pod in soft eviction, in seconds.", minimum=0)
    ] = None
    image_gc_high_threshold_percent: Annotated[
        int | None, describe("From so much disk in use on, images are removed.", minimum=0, maximum=100)
    ] = msgspec.field(default=None, name="imageGCHighThresholdPercent")
    image_gc_low_threshold_percent: Annotated[
        int | None, describe("Down to so much disk in use, images are removed.", minimum=0, maximum=100)
    ] = msgspec.field(default=None, name="imageGCLowThresholdPercent")
    cpu_cfs_quota: Annotated[bool | None, describe("Whether cpu limits are enforced.")] = msgspec.field(
        default=None, name="cpuCFSQuota"
    )
    cluster_dns: Annotated[list[str], describe("Addresses of the cluster's DNS servers.")] = msgspec.field(
        default_factory=list, name="clusterDNS"
    )


class BlockDevice(Struct):
    """An EBS volume; ``volume_size`` is a quantity ("20Gi")."""

    delete_on_termination: Annotated[bool | None, describe("Whether the volume goes with its instance.")] = None
    encrypted: Annotated[bool | None, describe("Whether the volume is encrypted.")] = None
    iops: Annotated[int | None, describe("Operations a second; for gp3, io1 and io2.")] = None
    kms_key_id: Annotated[str, describe("The key that encrypts the volume: id, ARN or alias.")] = msgspec.field(
        default="", name="kmsKeyID"
    )
    snapshot_id: Annotated[str, describe("The snapshot that the volume starts as.")] = msgspec.field(
        default="", name="snapshotID"
    )
    throughput: Annotated[int | None, describe("MiB a second; for gp3.")] = None
    volume_initialization_rate: Annotated[
        int | None, describe("MiB a second at which a snapshot is read in.", minimum=100, maximum=300)
    ] = None
    volume_size: Annotated[str | int | float | None, describe("The size, such as 20Gi.")] = None
    volume_type: Annotated[str, describe("The kind of volume.", enum=VOLUME_TYPES)] = ""


class BlockDeviceMapping(Struct):
    """A device and its volume; ``root_volume`` marks the one that pods' ephemeral storage comes from."""

    device_name: Annotated[str, describe("The device, such as /dev/xvda.")] = ""
    root_volume: Annotated[bool, describe("Whether pods' ephemeral storage comes from it; one at most.")] = False
    ebs: Annotated[BlockDevice | None, describe("The volume.")] = None


class MetadataOptions(Struct):
    """How the instance metadata service answers; the defaults keep pods away from it."""

    http_endpoint: Annotated[
        str, describe("Whether the service answers.", default=True, enum=METADATA_CHOICES["httpEndpoint"])
    ] = "enabled"
    http_protocol_ipv6: Annotated[
        str, describe("Whether it answers over IPv6.", default=True, enum=METADATA_CHOICES["httpProtocolIPv6"])
    ] = msgspec.field(default="disabled", name="httpProtocolIPv6")
    http_put_response_hop_limit: Annotated[
        int, describe("How many hops a token travels; 1 stops at the host.", default=True, minimum=1, maximum=64)
    ] = 1
    http_tokens: Annotated[
        str, describe("Whether requests need a token (IMDSv2).", default=True, enum=METADATA_CHOICES["httpTokens"])
    ] = "required"


class EC2NodeClassSpec(Struct):
    """What the user asks of the instances."""

    subnet_selector_terms: Annotated[
        list[SubnetSelectorTerm],
        describe("Where instances are launched; any term may hold.", required=True, minItems=1, maxItems=MAX_TERMS),
    ] = []
    security_group_selector_terms: Annotated[
        list[SecurityGroupSelectorTerm],
        describe("Security groups of the instances; any term may hold.", required=True, minItems=1, maxItems=MAX_TERMS),
    ] = []
    capacity_reservation_selector_terms: Annotated[
        list[CapacityReservationSelectorTerm],
        describe("Capacity reservations that launches may use; any term may hold.", maxItems=MAX_TERMS),
    ] = []
    associate_public_ip_address: Annotated[
        bool | None, describe("Whether instances get a public address; the subnet decides without.")
    ] = msgspec.field(default=None, name="associatePublicIPAddress")
    ami_selector_terms: Annotated[
        list[AMISelectorTerm],
        describe("Images of the instances; any term may hold.", required=True, minItems=1, maxItems=MAX_TERMS),
    ] = []
    ami_family: Annotated[str, describe("How user data is written; an alias says it by itself.", enum=AMI_FAMILIES)] = (
        ""
    )
    user_data: Annotated[str, describe("User data in the family's own format; Tenon adds what joins the cluster.")] = ""
    role: Annotated[
        str, describe("The IAM role of the nodes, by name; Tenon's own without role and instanceProfile.", minLength=1)
    ] = ""
    instance_profile: Annotated[
        str, describe("The instance profile of the nodes, in place of a role.", minLength=1)
    ] = ""
    tags: Annotated[dict[str, str], describe("Tags of instances, volumes and fleets.")] = {}
    kubelet: Annotated[Kubelet | None, describe("Settings of the kubelet.")] = None
    block_device_mappings: Annotated[
        list[BlockDeviceMapping],
        describe(
            "Volumes of the instances; one encrypted gp3 volume of 20Gi without.",
            maxItems=MAX_DEVICES,
            rules=(
                (
                    "self.filter(x, has(x.rootVolume) && x.rootVolume).size() <= 1",
                    "at most one of blockDeviceMappings may have rootVolume",
                ),
            ),
        ),
    ] = []
    instance_store_policy: Annotated[
        str, describe("RAID0: pods' ephemeral storage is on the instance's own disks.", enum=INSTANCE_STORE_POLICIES)
    ] = ""
    detailed_monitoring: Annotated[bool, describe("Whether CloudWatch gets figures each minute.")] = False
    metadata_options: Annotated[
        MetadataOptions, describe("How the instance metadata service answers.", default=True)
    ] = MetadataOptions()
    context: Annotated[str, describe("Reserved by EC2 (CreateFleet).")] = ""
    placement_group_selector: Annotated[dict[str, Any] | None, describe("The placement group of the instances.")] = None
    network_interfaces: Annotated[list[dict[str, Any]], describe("Network interfaces beyond the first.")] = []
    connection_tracking: Annotated[dict[str, Any] | None, describe("Timeouts of connection tracking.")] = None
    cpu_options: Annotated[dict[str, Any] | None, describe("Cores and threads of the instances.")] = None


class ResolvedSubnet(Struct):
    """A subnet that the terms select."""

    id: Annotated[str, describe("The subnet's id.")]
    zone: Annotated[str, describe("Its availability zone.")] = ""
    zone_id: Annotated[str, describe("The zone's id, which is the same in all accounts.")] = msgspec.field(
        default="", name="zoneID"
    )


class ResolvedSecurityGroup(Struct):
    """A security group that the terms select."""

    id: Annotated[str, describe("The group's id.")]
    name: Annotated[str, describe("Its name.")] = ""


class AMIRequirement(Struct):
    """Which instance types an image is for."""

    key: Annotated[str, describe("The label.")]
    operator: Annotated[str, describe("How the label's value relates to the values.")]
    values: Annotated[list[str], describe("What it is compared with.")] = []


class ResolvedAMI(Struct):
    """An image that the terms select, and for which instance types."""

    id: Annotated[str, describe("The image's id.")]
    name: Annotated[str, describe("Its name.")] = ""
    requirements: Annotated[list[AMIRequirement], describe("Which instance types it is for.")] = []


class ResolvedCapacityReservation(Struct):
    """A capacity reservation that the terms select."""

    id: Annotated[str, describe("The reservation's id.")]
    instance_type: Annotated[str, describe("The instance type that it reserves.")] = ""
    availability_zone: Annotated[str, describe("The availability zone that it is in.")] = ""
    available_instance_count: Annotated[int, describe("How many of its instances are unused.", minimum=0)] = 0
    reservation_type: Annotated[str, describe("default or capacity-block.")] = "default"
    interruptible: Annotated[bool, describe("Whether its owner may take the instances back.")] = False
    owner_id: Annotated[str, describe("Whose reservation it is: an account's id.")] = msgspec.field(
        default="", name="ownerID"
    )


class EC2NodeClassStatus(Struct):
    """What was found on AWS."""

    subnets: Annotated[list[ResolvedSubnet], describe("Subnets that the terms select.")] = []
    security_groups: Annotated[list[ResolvedSecurityGroup], describe("Security groups that the terms select.")] = []
    amis: Annotated[list[ResolvedAMI], describe("Images that the terms select.")] = []
    capacity_reservations: Annotated[
        list[ResolvedCapacityReservation], describe("Capacity reservations that the terms select.")
    ] = []
    instance_profile: Annotated[str, describe("The instance profile of the nodes.")] = ""
    conditions: Annotated[list[Condition], describe("What is observed about the class.")] = []


class EC2NodeClass(Struct):
    """What instances are made of: where they stand, their image, role, volumes and settings.

    One converted from an AWSNodeTemplate keeps that object's apiVersion and kind.
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[
        EC2NodeClassSpec,
        describe(
            "What the user asks of the instances.",
            required=True,
            rules=(
                (
                    "!(has(self.role) && has(self.instanceProfile))",
                    "role and instanceProfile exclude each other",
                ),
            ),
        ),
    ] = EC2NodeClassSpec()
    status: Annotated[EC2NodeClassStatus, describe("What was found on AWS.")] = EC2NodeClassStatus()
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

    @property
    def al2_follows_version(self) -> bool:
        """Whether the family AL2 means AL2023 on clusters for which AWS publishes no AL2 images.

        True for classes converted from AWSNodeTemplates, which may be older than the end of AL2.
        """
        return self.kind != KIND

    def selector_path(self, terms_field: str, index: int | None = None, key: str = "") -> str:
        """The path of a selector as the user wrote it: ``spec.subnetSelectorTerms[0].id``, for messages.

        A class converted from an AWSNodeTemplate has one selector in place of terms: ``spec.subnetSelector``.
        """
        if self.kind != KIND:
            return f"spec.{terms_field.removesuffix('Terms')}"
        position = "" if index is None else f"[{index}]"
        return f"spec.{terms_field}{position}" + (f".{key}" if key else "")
