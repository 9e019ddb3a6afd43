"""The manifests that users apply: those of the demo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from shared.api import labels
from shared.api.capacity_buffer import CapacityBuffer
from shared.api.decode import Outcome, node_class, node_pool
from shared.api.kubernetes import NodeSelectorRequirement, Taint
from shared.api.nodeclass import EC2NodeClass, MetadataOptions
from shared.api.nodepool import Budget, NodePool
from shared.api.validation.capacity_buffer import validate_capacity_buffer

HERE = Path(__file__).parents[3] / "cli" / "demo" / "manifests"
FILES = sorted(HERE.glob("*.yaml"))
POOLS = ("NodePool", "Provisioner")
CLASSES = ("EC2NodeClass", "AWSNodeTemplate")


def documents(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text(encoding="utf-8")))


def pool(name: str, file: str) -> NodePool:
    raw = next(o for o in documents(HERE / file) if o["kind"] in POOLS and o["metadata"]["name"] == name)
    decoded = node_pool(raw)
    assert not decoded.problems
    assert decoded.value is not None
    return decoded.value


def template_class(name: str, file: str) -> EC2NodeClass:
    raw = next(o for o in documents(HERE / file) if o["kind"] in CLASSES and o["metadata"]["name"] == name)
    decoded = node_class(raw)
    assert not decoded.problems
    assert decoded.value is not None
    return decoded.value


def requirement(key: str, operator: str, *values: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator=operator, values=list(values))


LINUX = requirement("kubernetes.io/os", "In", "linux")
AMD64 = requirement("kubernetes.io/arch", "In", "amd64")
CATEGORY = requirement("karpenter.k8s.aws/instance-category", "In", "c", "m", "r")
GENERATION = requirement("karpenter.k8s.aws/instance-generation", "Gt", "2")


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_every_manifest_is_valid(file: Path) -> None:
    outcomes: list[Outcome[NodePool] | Outcome[EC2NodeClass]] = []
    outcomes += [node_pool(o) for o in documents(file) if o["kind"] in POOLS]
    outcomes += [node_class(o) for o in documents(file) if o["kind"] in CLASSES]
    buffers = [msgspec.convert(o, CapacityBuffer) for o in documents(file) if o["kind"] == "CapacityBuffer"]
    assert outcomes or buffers
    assert [problem for buffer in buffers for problem in validate_capacity_buffer(buffer)] == []
    assert all(outcome.value is not None and not outcome.problems for outcome in outcomes)


def test_a_spot_provisioner_becomes_a_pool_that_empties_after_thirty_seconds() -> None:
    decoded_pool = pool("default", "spot-default.yaml")
    assert decoded_pool.spec.disruption.consolidation_policy == "WhenEmpty"
    assert decoded_pool.spec.disruption.consolidate_after == "30s"
    assert decoded_pool.spec.disruption.budgets == [Budget(nodes="100%")]
    assert decoded_pool.spec.template.spec.expire_after == "Never"
    assert decoded_pool.spec.limits == {"cpu": 1000}
    assert decoded_pool.spec.template.spec.requirements == [
        requirement("karpenter.sh/capacity-type", "In", "spot"),
        LINUX,
        AMD64,
        CATEGORY,
        GENERATION,
    ]


def test_a_converted_pool_is_still_known_as_the_object_that_the_user_wrote() -> None:
    decoded_pool = pool("default", "spot-default.yaml")
    assert str(decoded_pool.ref) == "Provisioner default"
    assert decoded_pool.api_version == "karpenter.sh/v1alpha5"
    reference = decoded_pool.spec.template.spec.node_class_ref
    assert (reference.group, reference.kind, reference.name) == ("karpenter.k8s.aws", "AWSNodeTemplate", "default")
    assert str(template_class("default", "spot-default.yaml").ref) == "AWSNodeTemplate default"


def test_pods_that_select_by_the_old_label_find_it_on_the_nodes() -> None:
    decoded_pool = pool("default", "spot-default.yaml")
    assert decoded_pool.spec.template.metadata.labels == {labels.PROVISIONER_NAME: "default"}


def test_consolidation_becomes_when_empty_or_underutilized() -> None:
    decoded_pool = pool("default", "consolidation.yaml")
    assert decoded_pool.spec.disruption.consolidation_policy == "WhenEmptyOrUnderutilized"
    assert decoded_pool.spec.disruption.consolidate_after == "0s"
    assert decoded_pool.spec.template.metadata.labels["type"] == "karpenter"


def test_named_instance_types_get_no_category_or_generation() -> None:
    assert pool("default", "consolidation.yaml").spec.template.spec.requirements == [
        requirement("karpenter.sh/capacity-type", "In", "on-demand"),
        requirement("node.kubernetes.io/instance-type", "In", "c5.large", "m5.large", "m5.xlarge"),
        LINUX,
        AMD64,
    ]


def test_without_a_rule_for_empty_nodes_they_stay() -> None:
    decoded_pool = pool("spot", "capacity-spread.yaml")
    assert decoded_pool.spec.disruption.consolidation_policy == "WhenEmpty"
    assert decoded_pool.spec.disruption.consolidate_after == "Never"
    spread = requirement("karpenter.sh/capacity-spread", "In", "spot-1", "spot-2", "spot-3")
    assert spread in decoded_pool.spec.template.spec.requirements


def test_stated_architectures_stay() -> None:
    requirements = pool("team1", "team1.yaml").spec.template.spec.requirements
    assert requirement("kubernetes.io/arch", "In", "amd64", "arm64") in requirements
    assert AMD64 not in requirements


def test_the_custom_provisioner_keeps_all_of_it() -> None:
    decoded_pool = pool("general", "custom-template.yaml")
    assert decoded_pool.spec.weight == 50
    assert decoded_pool.spec.limits == {"cpu": "1000", "memory": "1000Gi"}
    assert decoded_pool.spec.disruption.consolidate_after == "60s"
    template = decoded_pool.spec.template.spec
    assert template.expire_after == "2592000s"
    assert template.taints == [Taint(key="example.com/special-taint", effect="NoSchedule")]
    assert len(template.requirements) == 7
    assert template.kubelet is not None
    assert template.kubelet.eviction_max_pod_grace_period == 60


def test_the_custom_template_keeps_all_of_it() -> None:
    spec = template_class("general", "custom-template.yaml").spec
    assert [t.alias for t in spec.ami_selector_terms] == ["al2@latest"]
    assert spec.ami_family == "AL2"
    assert spec.instance_profile == "KarpenterInstanceProfile"
    assert spec.detailed_monitoring
    assert spec.tags == {"Name": "general", "auto-delete": "no"}
    (device,) = spec.block_device_mappings
    assert device.device_name == "/dev/xvda"
    assert device.ebs is not None
    assert (device.ebs.volume_size, device.ebs.volume_type, device.ebs.iops, device.ebs.throughput) == (
        "30Gi",
        "gp3",
        3000,
        125,
    )
    assert device.ebs.encrypted
    assert device.ebs.kms_key_id.endswith("key/00000000-0000-0000-0000-000000000000")


def test_a_template_without_a_family_leaves_the_choice_to_the_launch() -> None:
    spec = template_class("default", "spot-default.yaml").spec
    assert spec.ami_family == ""
    assert spec.ami_selector_terms == []
    assert [t.tags for t in spec.subnet_selector_terms] == [{"karpenter.sh/discovery": "CLUSTER"}]
    assert [t.tags for t in spec.security_group_selector_terms] == [{"karpenter.sh/discovery": "CLUSTER"}]
    assert spec.metadata_options == MetadataOptions(http_put_response_hop_limit=2)


def test_a_v1_pool_is_taken_as_it_is() -> None:
    decoded_pool = pool("default", "v1.yaml")
    assert str(decoded_pool.ref) == "NodePool default"
    assert decoded_pool.spec.weight == 10
    assert decoded_pool.spec.template.spec.termination_grace_period == "1h"
    assert decoded_pool.spec.disruption.budgets[1] == Budget(
        nodes="0", schedule="0 9 * * mon-fri", duration="8h", reasons=["Underutilized"]
    )
    assert decoded_pool.spec.template.spec.requirements[1].min_values == 2
    assert decoded_pool.spec.template.spec.kubelet is None
    spec = template_class("default", "v1.yaml").spec
    assert spec.role == "TenonNodeRole-CLUSTER"
    assert spec.metadata_options.http_put_response_hop_limit == 1
