"""EC2NodeClass of karpenter.k8s.aws/v1: the AWS configuration of instances."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from shared.api.meta import ApiStruct, Condition, NamedObject, ObjectRef, describe

API_VERSION = "karpenter.k8s.aws/v1"
KIND = "EC2NodeClass"

SUBNETS_READY = "SubnetsReady"
SECURITY_GROUPS_READY = "SecurityGroupsReady"
AMIS_READY = "AMIsReady"
INSTANCE_PROFILE_READY = "InstanceProfileReady"
CAPACITY_RESERVATIONS_READY = "CapacityReservationsReady"
"""Set only where the class selects capacity reservations."""
VALIDATION_SUCCEEDED = "ValidationSucceeded"
KUBERNETES_VERSION_HELD = "KubernetesVersionHeld"
"""Set only where the class has, or had lately, annotation tenon.sh/kubernetes-version."""
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
"""AMI families by the family of an alias (the part before @)."""
AMI_FAMILIES = (*ALIAS_FAMILIES.values(), "Custom")
VOLUME_TYPES = ("gp3", "gp2", "io1", "io2", "st1", "sc1", "standard")
INSTANCE_STORE_POLICIES = ("RAID0",)
MATCH_CRITERIA = ("open", "targeted")
METADATA_CHOICES = {
    "httpEndpoint": ("enabled", "disabled"),
    "httpProtocolIPv6": ("enabled", "disabled"),
    "httpTokens": ("required", "optional"),
}
MAX_TERMS = 30
MAX_DEVICES = 50


class SubnetSelectorTerm(ApiStruct):
    """Selects subnets by tags (an empty or ``*`` value matches any value) or by id; terms are ORed."""

    tags: Annotated[dict[str, str], describe("Tags of the subnet; * matches any value.", maxProperties=20)] = {}
    id: Annotated[str, describe("The subnet's id; excludes other fields.", pattern="^subnet-[0-9a-z]+$")] = ""


class SecurityGroupSelectorTerm(ApiStruct):
    """Selects security groups by tags, id or name; terms are ORed."""

    tags: Annotated[dict[str, str], describe("Tags of the security group; * matches any value.", maxProperties=20)] = {}
    id: Annotated[str, describe("The security group's id; excludes other fields.", pattern="^sg-[0-9a-z]+$")] = ""
    name: Annotated[str, describe("The security group's name (not its Name tag).")] = ""


class AMISelectorTerm(ApiStruct):
    """Selects AMIs by alias (``al2023@latest``), tags, id, name, owner or SSM parameter; terms are ORed."""

    alias: Annotated[
        str,
        describe(
            "An EKS-optimized AMI: family@version, such as al2023@latest; excludes other fields and terms.",
            maxLength=30,
            pattern=f"^({'|'.join(ALIAS_FAMILIES)})@.+$",
        ),
    ] = ""
    tags: Annotated[dict[str, str], describe("Tags of the AMI; * matches any value.", maxProperties=20)] = {}
    id: Annotated[str, describe("The AMI's id; excludes other fields.", pattern="^ami-[0-9a-z]+$")] = ""
    name: Annotated[str, describe("The AMI's name (not its Name tag); * matches any characters.")] = ""
    owner: Annotated[str, describe("The AMI's owner: an account id, self or amazon.")] = ""
    ssm_parameter: Annotated[str, describe("The SSM parameter with the AMI's id; excludes other fields.")] = ""


class CapacityReservationSelectorTerm(ApiStruct):
    """Selects on-demand capacity reservations by tags, id or owner; terms are ORed."""

    tags: Annotated[dict[str, str], describe("Tags of the reservation; * matches any value.", maxProperties=20)] = {}
    id: Annotated[str, describe("The reservation's id; excludes other fields.", pattern="^cr-[0-9a-z]+$")] = ""
    owner_id: Annotated[str, describe("The reservation's owner: an account id.", pattern="^[0-9]{12}$")] = (
        msgspec.field(default="", name="ownerID")
    )
    instance_match_criteria: Annotated[
        str, describe("The instance match criteria of the reservation.", enum=MATCH_CRITERIA)
    ] = ""


class BlockDevice(ApiStruct):
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


class BlockDeviceMapping(ApiStruct):
    """A device and its volume; ``root_volume`` marks the one that pods' ephemeral storage comes from."""

    device_name: Annotated[str, describe("The device, such as /dev/xvda.")] = ""
    root_volume: Annotated[bool, describe("Whether pods' ephemeral storage comes from it; one at most.")] = False
    ebs: Annotated[BlockDevice | None, describe("The volume.")] = None


class MetadataOptions(ApiStruct):
    """How the instance metadata service answers; the defaults keep pods away from it."""

    http_endpoint: Annotated[
        str, describe("Whether the service answers.", default=True, enum=METADATA_CHOICES["httpEndpoint"])
    ] = "enabled"
    http_protocol_ipv6: Annotated[
        str, describe("Whether it answers over IPv6.", default=True, enum=METADATA_CHOICES["httpProtocolIPv6"])
    ] = msgspec.field(default="disabled", name="httpProtocolIPv6")
    http_put_response_hop_limit: Annotated[
        int,
        describe(
            "The maximum number of hops of metadata responses; with 1 containers can't reach the service.",
            default=True,
            minimum=1,
            maximum=64,
        ),
    ] = 1
    http_tokens: Annotated[
        str,
        describe("Whether requests need a session token (IMDSv2).", default=True, enum=METADATA_CHOICES["httpTokens"]),
    ] = "required"


class EnclaveOptions(ApiStruct):
    """Whether instances can run AWS Nitro Enclaves."""

    enabled: Annotated[bool, describe("Whether Nitro Enclaves are enabled; only types that support them are launched.")]


ENCLAVES = EnclaveOptions(enabled=True)
"""The options of a class with Nitro Enclaves."""


class EC2NodeClassSpec(ApiStruct):
    """The desired state of an EC2NodeClass."""

    subnet_selector_terms: Annotated[
        list[SubnetSelectorTerm],
        describe(
            "Selects the subnets of the instances; terms are ORed.", required=True, minItems=1, maxItems=MAX_TERMS
        ),
    ] = []
    security_group_selector_terms: Annotated[
        list[SecurityGroupSelectorTerm],
        describe(
            "Selects the security groups of the instances; terms are ORed.",
            required=True,
            minItems=1,
            maxItems=MAX_TERMS,
        ),
    ] = []
    capacity_reservation_selector_terms: Annotated[
        list[CapacityReservationSelectorTerm],
        describe("Selects the capacity reservations for launches; terms are ORed.", maxItems=MAX_TERMS),
    ] = []
    associate_public_ip_address: Annotated[
        bool | None, describe("Whether instances get a public IP address; by default the subnet's setting.")
    ] = msgspec.field(default=None, name="associatePublicIPAddress")
    ip_prefix_count: Annotated[
        int | None,
        describe("The number of IP prefixes (of 16 IPv4 addresses) that each interface gets at launch.", minimum=0),
    ] = None
    ami_selector_terms: Annotated[
        list[AMISelectorTerm],
        describe("Selects the AMIs of the instances; terms are ORed.", required=True, minItems=1, maxItems=MAX_TERMS),
    ] = []
    ami_family: Annotated[
        str, describe("The AMI family, which determines the form of user data; an alias implies it.", enum=AMI_FAMILIES)
    ] = ""
    user_data: Annotated[
        str, describe("User data in the form of the AMI family; Tenon merges its bootstrap into it.")
    ] = ""
    role: Annotated[
        str, describe("The name of the nodes' IAM role; without role and instanceProfile, Tenon's own.", minLength=1)
    ] = ""
    instance_profile: Annotated[str, describe("The nodes' instance profile, instead of a role.", minLength=1)] = ""
    tags: Annotated[dict[str, str], describe("Tags of instances, volumes, network interfaces and fleets.")] = {}
    kubelet: Annotated[
        dict[str, Any] | None,
        describe(
            "The fields of the kubelet's KubeletConfiguration (v1beta1); maxPods and the values of kubeReserved and "
            "systemReserved may be expressions."
        ),
    ] = None
    block_device_mappings: Annotated[
        list[BlockDeviceMapping],
        describe(
            "Volumes of the instances; by default one encrypted gp3 volume of 20Gi.",
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
        str, describe("RAID0: ephemeral storage is on the instance store volumes.", enum=INSTANCE_STORE_POLICIES)
    ] = ""
    detailed_monitoring: Annotated[
        bool, describe("Whether detailed (one-minute) CloudWatch monitoring is enabled.")
    ] = False
    metadata_options: Annotated[
        MetadataOptions, describe("Options of the instance metadata service.", default=True)
    ] = MetadataOptions()
    enclave_options: Annotated[EnclaveOptions | None, describe("AWS Nitro Enclaves on the instances.")] = None
    context: Annotated[str, describe("Reserved by EC2 (CreateFleet).")] = ""
    placement_group_selector: Annotated[dict[str, Any] | None, describe("The placement group of the instances.")] = None
    network_interfaces: Annotated[list[dict[str, Any]], describe("Network interfaces of the instances.")] = []
    connection_tracking: Annotated[dict[str, Any] | None, describe("Connection tracking timeouts.")] = None
    cpu_options: Annotated[dict[str, Any] | None, describe("CPU options of the instances.")] = None


class ResolvedSubnet(ApiStruct):
    """A selected subnet."""

    id: Annotated[str, describe("The subnet's id.")]
    zone: Annotated[str, describe("Its availability zone.")] = ""
    zone_id: Annotated[str, describe("The zone's id, which is the same in all accounts.")] = msgspec.field(
        default="", name="zoneID"
    )


class ResolvedSecurityGroup(ApiStruct):
    """A selected security group."""

    id: Annotated[str, describe("The group's id.")]
    name: Annotated[str, describe("Its name.")] = ""


class AMIRequirement(ApiStruct):
    """A requirement on the instance types of an AMI."""

    key: Annotated[str, describe("The label.")]
    operator: Annotated[str, describe("How the label's value relates to the values.")]
    values: Annotated[list[str], describe("The values of the requirement.")] = []


class ResolvedAMI(ApiStruct):
    """A selected AMI, and the instance types it is for."""

    id: Annotated[str, describe("The AMI's id.")]
    name: Annotated[str, describe("Its name.")] = ""
    requirements: Annotated[list[AMIRequirement], describe("Requirements on instance types.")] = []


CAPACITY_BLOCK = "capacity-block"
"""The type of a capacity block, and EC2's market type for its instances."""
INTERRUPTIBLE = "interruptible-capacity-reservation"
"""EC2's market type for instances of a capacity reservation whose owner may reclaim them."""
ACTIVE, EXPIRING = "active", "expiring"


class ResolvedCapacityReservation(ApiStruct):
    """A selected capacity reservation."""

    id: Annotated[str, describe("The reservation's id.")]
    instance_type: Annotated[str, describe("The reserved instance type.")] = ""
    availability_zone: Annotated[str, describe("The availability zone of the reservation.")] = ""
    available_instance_count: Annotated[int, describe("The number of available instances.", minimum=0)] = 0
    reservation_type: Annotated[str, describe("default or capacity-block.")] = "default"
    instance_match_criteria: Annotated[str, describe("open or targeted.")] = ""
    state: Annotated[str, describe("active, or expiring for a capacity block that ends soon.", default=True)] = ACTIVE
    end_time: Annotated[datetime | None, describe("When the reservation ends; none if it has no end.")] = None
    interruptible: Annotated[bool, describe("Whether the owner may reclaim the instances.")] = False
    owner_id: Annotated[str, describe("The reservation's owner: an account id.")] = msgspec.field(
        default="", name="ownerID"
    )

    @property
    def reservation_kind(self) -> str:
        """EC2's market type for its instances; empty for the usual one."""
        if self.interruptible:
            return INTERRUPTIBLE
        return CAPACITY_BLOCK if self.reservation_type == CAPACITY_BLOCK else ""


class EC2NodeClassStatus(ApiStruct):
    """The observed state of an EC2NodeClass."""

    subnets: Annotated[list[ResolvedSubnet], describe("The selected subnets.")] = []
    security_groups: Annotated[list[ResolvedSecurityGroup], describe("The selected security groups.")] = []
    amis: Annotated[list[ResolvedAMI], describe("The selected AMIs.")] = []
    capacity_reservations: Annotated[
        list[ResolvedCapacityReservation], describe("The selected capacity reservations.")
    ] = []
    instance_profile: Annotated[str, describe("The instance profile of the nodes.")] = ""
    conditions: Annotated[list[Condition], describe("The conditions of the EC2NodeClass.")] = []


class EC2NodeClass(NamedObject):
    """The AWS configuration of instances: subnets, AMIs, role, volumes and other settings.

    A class converted from an AWSNodeTemplate keeps that object's apiVersion and kind.
    """

    spec: Annotated[
        EC2NodeClassSpec,
        describe(
            "The desired state of the EC2NodeClass.",
            required=True,
            rules=(
                (
                    "!(has(self.role) && has(self.instanceProfile))",
                    "role and instanceProfile exclude each other",
                ),
            ),
        ),
    ] = EC2NodeClassSpec()
    status: Annotated[EC2NodeClassStatus, describe("The observed state of the EC2NodeClass.")] = EC2NodeClassStatus()
    kind: str = KIND
    api_version: str = API_VERSION

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
