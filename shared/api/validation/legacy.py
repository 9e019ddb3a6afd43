"""Validation of the legacy kinds, by the paths of their own fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels, legacy
from shared.api.meta import to_json
from shared.api.nodeclass import AMI_FAMILIES
from shared.api.nodepool import MAX_WEIGHT
from shared.api.validation import fields, kubelet, nodeclass, nodepool
from shared.api.validation.fields import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.api.legacy import AWSNodeTemplate, AWSNodeTemplateSpec, Provisioner, ProvisionerSpec


def validate_provisioner(provisioner: Provisioner) -> Iterator[str]:
    """The problems of a karpenter.sh/v1alpha5 Provisioner, in the order of its fields."""
    spec = provisioner.spec
    yield from nodepool.pool_name(provisioner.metadata.name)
    yield from fields.template_labels("spec.labels", spec.labels)
    yield from fields.template_annotations("spec.annotations", spec.annotations)
    yield from fields.requirements("spec.requirements", spec.requirements)
    yield from fields.both_taints("spec", spec.taints, spec.startup_taints)
    if spec.kubelet_configuration is not None:
        yield from kubelet.read_settings("spec.kubeletConfiguration", to_json(spec.kubelet_configuration))
    yield from _provider(spec)
    yield from fields.within("spec.ttlSecondsAfterEmpty", spec.ttl_seconds_after_empty, 0)
    yield from fields.within("spec.ttlSecondsUntilExpired", spec.ttl_seconds_until_expired, 0)
    if spec.ttl_seconds_after_empty is not None and spec.consolidation is not None and spec.consolidation.enabled:
        yield (
            f"spec.ttlSecondsAfterEmpty: {spec.ttl_seconds_after_empty} is not allowed together with "
            f"spec.consolidation.enabled: true; allowed is one of them"
        )
    yield from fields.quantities("spec.limits.resources", spec.limits.resources)
    yield from fields.within("spec.weight", spec.weight, 1, MAX_WEIGHT)


def _provider(spec: ProvisionerSpec) -> Iterator[str]:
    if spec.provider is not None:
        yield "spec.provider: is not supported; put its fields into an AWSNodeTemplate and name it in spec.providerRef"
    elif spec.provider_ref is None:
        yield "spec.providerRef: is missing; the name of an AWSNodeTemplate is needed"
    if spec.provider_ref is None:
        return
    if not spec.provider_ref.name:
        yield "spec.providerRef.name: is empty; the name of an AWSNodeTemplate is needed"
    yield from fields.choice(
        "spec.providerRef.kind", spec.provider_ref.kind or legacy.TEMPLATE_KIND, (legacy.TEMPLATE_KIND,)
    )
    group = spec.provider_ref.api_version.partition("/")[0]
    if group not in {"", labels.AWS_GROUP}:
        yield (
            f"spec.providerRef.apiVersion: {quoted(spec.provider_ref.api_version)} is not allowed; allowed is "
            f"{legacy.TEMPLATE_API_VERSION}"
        )


def validate_node_template(template: AWSNodeTemplate) -> Iterator[str]:
    """The problems of a karpenter.k8s.aws/v1alpha1 AWSNodeTemplate, in the order of its fields."""
    spec = template.spec
    if not template.metadata.name:
        yield "metadata.name: is missing"
    yield from _selector("spec.subnetSelector", spec.subnet_selector, "subnet-")
    yield from _selector("spec.securityGroupSelector", spec.security_group_selector, "sg-")
    yield from _images(spec)
    if spec.launch_template:
        yield (
            f"spec.launchTemplate: {quoted(spec.launch_template)} is not supported; Tenon makes launch templates of "
            f"the other fields"
        )
    yield from nodeclass.tags("spec.tags", spec.tags)
    yield from nodeclass.block_devices("spec.blockDeviceMappings", spec.block_device_mappings)
    if spec.metadata_options is not None:
        yield from nodeclass.metadata_options("spec.metadataOptions", spec.metadata_options)


def _selector(path: str, selector: Mapping[str, str], prefix: str) -> Iterator[str]:
    if not selector:
        yield f"{path}: is empty; at least one tag is needed, such as karpenter.sh/discovery, or aws::ids"
    yield from _ids(path, selector, prefix)


def _ids(path: str, selector: Mapping[str, str], prefix: str) -> Iterator[str]:
    for key in sorted(legacy.IDS & selector.keys()):
        ids = legacy.split(selector[key])
        if not ids or not all(id_.startswith(prefix) for id_ in ids):
            yield f"{path}.{key}: {quoted(selector[key])} is not allowed; ids begin with {prefix}"


def _images(spec: AWSNodeTemplateSpec) -> Iterator[str]:
    if spec.ami_family:
        yield from fields.choice("spec.amiFamily", spec.ami_family, AMI_FAMILIES)
    if spec.ami_family == "Custom" and not spec.ami_selector:
        yield "spec.amiSelector: is empty; the amiFamily Custom needs it"
    yield from _ids("spec.amiSelector", spec.ami_selector, "ami-")
    if spec.ami_selector and spec.ami_selector.keys() <= {legacy.OWNERS}:
        yield "spec.amiSelector: names only owners; a tag, aws::name or aws::ids is needed"
