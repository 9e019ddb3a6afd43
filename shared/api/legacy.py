"""The legacy kinds Provisioner (v1alpha5) and AWSNodeTemplate (v1alpha1), and their conversion to v1.

They are converted when they are read, never in the cluster, so that users keep the objects they have. Defaults of the
old controllers are written out, because the defaults of v1 differ. Source:
docs/facts/karpenter.md, section 1, "Legacy → v1".
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from shared.api import labels
from shared.api.kubelet import Kubelet
from shared.api.kubernetes import NodeSelectorRequirement, Taint
from shared.api.meta import ApiStruct, ObjectMeta, ObjectRef, RawQuantities, describe
from shared.api.nodeclass import (
    AMISelectorTerm,
    BlockDeviceMapping,
    EC2NodeClass,
    EC2NodeClassSpec,
    EC2NodeClassStatus,
    MetadataOptions,
    SecurityGroupSelectorTerm,
    SubnetSelectorTerm,
)
from shared.api.nodepool import (
    Budget,
    Disruption,
    NodeClaimTemplate,
    NodeClassRef,
    NodePool,
    NodePoolSpec,
    NodePoolStatus,
    TemplateMetadata,
    TemplateSpec,
)
from shared.api.selectors import GT, IN
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PROVISIONER_API_VERSION = "karpenter.sh/v1alpha5"
PROVISIONER_KIND = "Provisioner"
TEMPLATE_API_VERSION = "karpenter.k8s.aws/v1alpha1"
TEMPLATE_KIND = "AWSNodeTemplate"

IDS = frozenset({"aws-ids", "aws::ids"})
NAME = "aws::name"
OWNERS = "aws::owners"
OLD_HOP_LIMIT = 2
"""What the old provider set where ``metadataOptions`` was absent; today's default is 1."""

_INSTANCE_KEYS = frozenset(
    {
        labels.INSTANCE_TYPE,
        labels.INSTANCE_PREFIX + "family",
        labels.INSTANCE_PREFIX + "category",
        labels.INSTANCE_PREFIX + "generation",
    }
)


class ProviderRef(ApiStruct):
    """The reference of a Provisioner to its AWSNodeTemplate."""

    name: Annotated[str, describe("The name of the AWSNodeTemplate.")] = ""
    kind: Annotated[str, describe("AWSNodeTemplate.")] = TEMPLATE_KIND
    api_version: Annotated[str, describe("karpenter.k8s.aws/v1alpha1.")] = ""


class Consolidation(ApiStruct):
    """Whether underutilized nodes are consolidated."""

    enabled: Annotated[bool, describe("Whether underutilized nodes are consolidated and empty nodes deleted.")] = False


class ProvisionerLimits(ApiStruct):
    """The limits of a Provisioner."""

    resources: Annotated[RawQuantities, describe("The maximum sum of the nodes' capacity, by resource.")] = {}


class ProvisionerSpec(ApiStruct):
    """The desired state of a Provisioner."""

    labels: Annotated[dict[str, str], describe("Labels of the nodes.")] = {}
    annotations: Annotated[dict[str, str], describe("Annotations of the nodes.")] = {}
    taints: Annotated[
        list[Taint], describe("Taints of the nodes; only pods that tolerate them are scheduled to the Provisioner.")
    ] = []
    startup_taints: Annotated[
        list[Taint], describe("Taints of new nodes that something in the cluster removes; pods need not tolerate them.")
    ] = []
    requirements: Annotated[
        list[NodeSelectorRequirement], describe("Requirements on the nodes' labels; all must be met.")
    ] = []
    kubelet_configuration: Annotated[Kubelet | None, describe("Kubelet settings of the nodes.")] = None
    provider_ref: Annotated[ProviderRef | None, describe("The AWSNodeTemplate that configures the instances.")] = None
    provider: Annotated[dict[str, Any] | None, describe("No longer supported; use providerRef.")] = None
    ttl_seconds_after_empty: Annotated[
        int | None, describe("The seconds after which an empty node is deleted; without it never.")
    ] = None
    ttl_seconds_until_expired: Annotated[
        int | None, describe("The age in seconds at which a node is replaced; without it never.")
    ] = None
    consolidation: Annotated[Consolidation | None, describe("Whether underutilized nodes are consolidated.")] = None
    limits: Annotated[ProvisionerLimits, describe("The limits of the Provisioner.")] = ProvisionerLimits()
    weight: Annotated[int | None, describe("Provisioners with a higher weight are tried first; 1 to 100.")] = None


class Provisioner(ApiStruct):
    """The NodePool of Karpenter before v0.32."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[ProvisionerSpec, describe("The desired state of the Provisioner.")] = ProvisionerSpec()
    status: Annotated[NodePoolStatus, describe("The observed state of the Provisioner.")] = NodePoolStatus()
    kind: str = PROVISIONER_KIND
    api_version: str = PROVISIONER_API_VERSION

    @property
    def ref(self) -> ObjectRef:
        """For events and messages."""
        return ObjectRef(api_version=self.api_version, kind=self.kind, name=self.metadata.name, uid=self.metadata.uid)


class AWSNodeTemplateSpec(ApiStruct):
    """The desired state of an AWSNodeTemplate."""

    subnet_selector: Annotated[
        dict[str, str], describe("Selects the subnets of the instances: tags, or aws::ids.")
    ] = {}
    security_group_selector: Annotated[
        dict[str, str], describe("Selects the security groups of the instances: tags, or aws::ids.")
    ] = {}
    ami_selector: Annotated[
        dict[str, str], describe("Selects the AMIs of the instances: tags, aws::ids, aws::name or aws::owners.")
    ] = {}
    ami_family: Annotated[str, describe("The AMI family, which determines the form of user data.")] = ""
    instance_profile: Annotated[str, describe("The nodes' instance profile; by default Tenon's own.")] = ""
    user_data: Annotated[
        str, describe("User data in the form of the AMI family; Tenon merges its bootstrap into it.")
    ] = ""
    launch_template: Annotated[str, describe("Not supported; launch templates are created from the other fields.")] = ""
    block_device_mappings: Annotated[list[BlockDeviceMapping], describe("Volumes of the instances.")] = []
    metadata_options: Annotated[MetadataOptions | None, describe("Options of the instance metadata service.")] = None
    tags: Annotated[dict[str, str], describe("Tags of instances, volumes, network interfaces and fleets.")] = {}
    detailed_monitoring: Annotated[
        bool, describe("Whether detailed (one-minute) CloudWatch monitoring is enabled.")
    ] = False
    associate_public_ip_address: Annotated[
        bool | None, describe("Whether instances get a public IP address; by default the subnet's setting.")
    ] = msgspec.field(default=None, name="associatePublicIPAddress")
    context: Annotated[str, describe("Reserved by EC2 (CreateFleet).")] = ""


class AWSNodeTemplate(ApiStruct):
    """The EC2NodeClass of Karpenter before v0.32."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[AWSNodeTemplateSpec, describe("The desired state of the AWSNodeTemplate.")] = AWSNodeTemplateSpec()
    status: Annotated[EC2NodeClassStatus, describe("The observed state of the AWSNodeTemplate.")] = EC2NodeClassStatus()
    kind: str = TEMPLATE_KIND
    api_version: str = TEMPLATE_API_VERSION

    @property
    def ref(self) -> ObjectRef:
        """For events and messages."""
        return ObjectRef(api_version=self.api_version, kind=self.kind, name=self.metadata.name, uid=self.metadata.uid)


def to_node_pool(provisioner: Provisioner) -> NodePool:
    """The NodePool of a valid Provisioner, with the Provisioner's apiVersion, kind and metadata.

    Provisioners had no budgets, so the NodePool has one that never limits. Their nodes had the label
    ``karpenter.sh/provisioner-name``, which pods may select, so the template has it too.
    """
    spec = provisioner.spec
    reference = spec.provider_ref or ProviderRef()
    return NodePool(
        metadata=provisioner.metadata,
        api_version=provisioner.api_version,
        kind=provisioner.kind,
        status=provisioner.status,
        spec=NodePoolSpec(
            template=NodeClaimTemplate(
                metadata=TemplateMetadata(
                    labels={
                        **{labels.normalize_key(key): value for key, value in spec.labels.items()},
                        labels.PROVISIONER_NAME: provisioner.metadata.name,
                    },
                    annotations=_annotations(spec.annotations),
                ),
                spec=TemplateSpec(
                    node_class_ref=NodeClassRef(group=labels.AWS_GROUP, kind=TEMPLATE_KIND, name=reference.name),
                    requirements=_requirements(spec),
                    taints=spec.taints,
                    startup_taints=spec.startup_taints,
                    expire_after=_seconds(spec.ttl_seconds_until_expired),
                    kubelet=spec.kubelet_configuration,
                ),
            ),
            disruption=_disruption(spec),
            limits=spec.limits.resources,
            weight=spec.weight if spec.weight is not None else 1,
        ),
    )


def _seconds(seconds: int | None) -> str:
    return "Never" if seconds is None else f"{seconds}s"


def _disruption(spec: ProvisionerSpec) -> Disruption:
    budgets = [Budget(nodes="100%")]
    if spec.consolidation is not None and spec.consolidation.enabled:
        return Disruption(consolidation_policy="WhenEmptyOrUnderutilized", consolidate_after="0s", budgets=budgets)
    after = _seconds(spec.ttl_seconds_after_empty)
    return Disruption(consolidation_policy="WhenEmpty", consolidate_after=after, budgets=budgets)


def _annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    return {
        labels.DO_NOT_DISRUPT if key in labels.LEGACY_DO_NOT_DISRUPT else key: value
        for key, value in annotations.items()
    }


def _requirements(spec: ProvisionerSpec) -> list[NodeSelectorRequirement]:
    """The requirements with normalized keys, and the old defaults for keys that are in neither them nor the labels."""
    requirements = [with_fields(r, key=labels.normalize_key(r.key)) for r in spec.requirements]
    keys = {r.key for r in requirements} | {labels.normalize_key(key) for key in spec.labels}
    assumed = [
        NodeSelectorRequirement(key=key, operator=IN, values=[value])
        for key, value in ((labels.OS, "linux"), (labels.ARCH, "amd64"), (labels.CAPACITY_TYPE, labels.ON_DEMAND))
        if key not in keys
    ]
    if not keys & _INSTANCE_KEYS:
        assumed += [
            NodeSelectorRequirement(key=labels.INSTANCE_PREFIX + "category", operator=IN, values=["c", "m", "r"]),
            NodeSelectorRequirement(key=labels.INSTANCE_PREFIX + "generation", operator=GT, values=["2"]),
        ]
    return requirements + assumed


def to_node_class(template: AWSNodeTemplate) -> EC2NodeClass:
    """The EC2NodeClass of a valid AWSNodeTemplate, with the AWSNodeTemplate's apiVersion, kind and metadata.

    Without a family and a selector both stay empty: the cluster's version determines the family.
    """
    spec = template.spec
    return EC2NodeClass(
        metadata=template.metadata,
        api_version=template.api_version,
        kind=template.kind,
        status=template.status,
        spec=EC2NodeClassSpec(
            subnet_selector_terms=[SubnetSelectorTerm(tags=tags, id=id_) for tags, id_ in _terms(spec.subnet_selector)],
            security_group_selector_terms=[
                SecurityGroupSelectorTerm(tags=tags, id=id_) for tags, id_ in _terms(spec.security_group_selector)
            ],
            ami_selector_terms=_ami_terms(spec),
            ami_family=spec.ami_family or ("AL2" if spec.ami_selector else ""),
            instance_profile=spec.instance_profile,
            user_data=spec.user_data,
            block_device_mappings=spec.block_device_mappings,
            metadata_options=spec.metadata_options or MetadataOptions(http_put_response_hop_limit=OLD_HOP_LIMIT),
            tags=spec.tags,
            detailed_monitoring=spec.detailed_monitoring,
            associate_public_ip_address=spec.associate_public_ip_address,
            context=spec.context,
        ),
    )


def split(value: str) -> list[str]:
    """The non-empty parts of a comma-separated value, without surrounding spaces."""
    return [part.strip() for part in value.split(",") if part.strip()]


def _alternatives(selector: Mapping[str, str]) -> list[dict[str, str]]:
    """A tag map for each combination: a value with commas matches any of its parts, each of which is a term in v1."""
    keys = sorted(selector)
    choices: Iterable[tuple[str, ...]] = itertools.product(*(split(selector[key]) or ["*"] for key in keys))
    return [dict(zip(keys, choice, strict=True)) for choice in choices]


def _terms(selector: Mapping[str, str]) -> list[tuple[dict[str, str], str]]:
    """Tags and id of each term; with ids and tags, both must match."""
    if not selector:
        return []
    tags = {key: value for key, value in selector.items() if key not in IDS}
    ids = [id_ for key in sorted(IDS & selector.keys()) for id_ in split(selector[key])]
    return [(alternative, id_) for alternative in _alternatives(tags) for id_ in (ids or [""])]


def _ami_terms(spec: AWSNodeTemplateSpec) -> list[AMISelectorTerm]:
    selector = spec.ami_selector
    if not selector:
        return [AMISelectorTerm(alias=f"{spec.ami_family.lower()}@latest")] if spec.ami_family else []
    names = split(selector.get(NAME, "")) or [""]
    owners = split(selector.get(OWNERS, "")) or [""]
    rest = {key: value for key, value in selector.items() if key not in {NAME, OWNERS}}
    return [
        AMISelectorTerm(tags=tags, id=id_, name=name, owner=owner)
        for (tags, id_), name, owner in itertools.product(_terms(rest) or [({}, "")], names, owners)
    ]
