from __future__ import annotations

from typing import Any

import pytest

from shared.api.decode import node_class, node_pool
from shared.api.kubelet import Kubelet
from shared.api.nodeclass import AMISelectorTerm, EC2NodeClass
from shared.api.nodepool import NodePool, node_class_for


def provisioner(**spec: object) -> dict[str, Any]:
    whole = {"providerRef": {"name": "default"}, **spec}
    return {"apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner", "metadata": {"name": "p"}, "spec": whole}


def template(**spec: object) -> dict[str, Any]:
    whole = {"subnetSelector": {"a": "b"}, "securityGroupSelector": {"a": "b"}, **spec}
    return {
        "apiVersion": "karpenter.k8s.aws/v1alpha1",
        "kind": "AWSNodeTemplate",
        "metadata": {"name": "t"},
        "spec": whole,
    }


def pool(**spec: object) -> NodePool:
    decoded = node_pool(provisioner(**spec))
    assert decoded.problems == ()
    assert decoded.value is not None
    return decoded.value


def converted(**spec: object) -> EC2NodeClass:
    decoded = node_class(template(**spec))
    assert decoded.problems == ()
    assert decoded.value is not None
    return decoded.value


def test_old_label_keys_are_read_as_todays() -> None:
    converted_pool = pool(
        labels={"failure-domain.beta.kubernetes.io/zone": "a"},
        requirements=[{"key": "beta.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]}],
    )
    assert converted_pool.spec.template.metadata.labels["topology.kubernetes.io/zone"] == "a"
    assert converted_pool.spec.template.spec.requirements[0].key == "node.kubernetes.io/instance-type"


def test_old_annotations_are_read_as_todays() -> None:
    converted_pool = pool(annotations={"karpenter.sh/do-not-evict": "true", "x": "y"})
    assert converted_pool.spec.template.metadata.annotations == {"karpenter.sh/do-not-disrupt": "true", "x": "y"}


def test_no_default_requirement_is_added_for_a_key_set_by_a_label() -> None:
    converted_pool = pool(labels={"kubernetes.io/arch": "arm64"})
    assert all(r.key != "kubernetes.io/arch" for r in converted_pool.spec.template.spec.requirements)


def test_the_provisioners_kubelet_settings_stand_before_those_of_a_class() -> None:
    converted_pool = pool(kubeletConfiguration={"maxPods": 20, "containerRuntime": "containerd"})
    assert converted_pool.spec.template.spec.kubelet == Kubelet(max_pods=20)
    assert node_class_for(converted_pool, converted()).spec.kubelet == {"maxPods": 20}
    assert node_class_for(pool(), converted()).spec.kubelet is None


def test_consolidation_switched_off_leaves_the_time_to_empty() -> None:
    converted_pool = pool(consolidation={"enabled": False}, ttlSecondsAfterEmpty=0)
    assert converted_pool.spec.disruption.consolidation_policy == "WhenEmpty"
    assert converted_pool.spec.disruption.consolidate_after == "0s"


@pytest.mark.parametrize("key", ["aws-ids", "aws::ids"])
def test_selectors_by_id_become_a_term_an_id(key: str) -> None:
    converted_class = converted(subnetSelector={key: "subnet-1, subnet-2"}, securityGroupSelector={key: "sg-1"})
    assert [t.id for t in converted_class.spec.subnet_selector_terms] == ["subnet-1", "subnet-2"]
    assert [t.id for t in converted_class.spec.security_group_selector_terms] == ["sg-1"]


def test_a_tag_with_several_values_becomes_a_term_each() -> None:
    converted_class = converted(subnetSelector={"Name": "a,b", "tier": "private"})
    assert [t.tags for t in converted_class.spec.subnet_selector_terms] == [
        {"Name": "a", "tier": "private"},
        {"Name": "b", "tier": "private"},
    ]


def test_an_empty_tag_value_means_any() -> None:
    converted_class = converted(subnetSelector={"kubernetes.io/cluster/c": ""})
    assert [t.tags for t in converted_class.spec.subnet_selector_terms] == [{"kubernetes.io/cluster/c": "*"}]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"aws::ids": "ami-1,ami-2"}, [AMISelectorTerm(id="ami-1"), AMISelectorTerm(id="ami-2")]),
        ({"team": "a"}, [AMISelectorTerm(tags={"team": "a"})]),
        (
            {"aws::name": "my-image", "aws::owners": "self,123456789012"},
            [AMISelectorTerm(name="my-image", owner="self"), AMISelectorTerm(name="my-image", owner="123456789012")],
        ),
    ],
)
def test_image_selectors_become_terms(selector: dict[str, str], expected: list[AMISelectorTerm]) -> None:
    converted_class = converted(amiSelector=selector)
    assert converted_class.spec.ami_selector_terms == expected
    assert converted_class.spec.ami_family == "AL2"


def test_a_family_without_a_selector_is_its_newest_image() -> None:
    converted_class = converted(amiFamily="Bottlerocket")
    assert converted_class.spec.ami_selector_terms == [AMISelectorTerm(alias="bottlerocket@latest")]


def test_stated_metadata_options_stay() -> None:
    converted_class = converted(metadataOptions={"httpTokens": "optional", "httpPutResponseHopLimit": 3})
    assert converted_class.spec.metadata_options.http_tokens == "optional"
    assert converted_class.spec.metadata_options.http_put_response_hop_limit == 3


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"providerRef": None}, "spec.providerRef: is missing"),
        ({"providerRef": {}}, "spec.providerRef.name: is empty"),
        ({"providerRef": {"name": "a", "kind": "Thing"}}, 'spec.providerRef.kind: "Thing" is not allowed'),
        ({"provider": {"subnetSelector": {}}}, "spec.provider: is not supported"),
        (
            {"requirements": [{"key": "a", "operator": "Equals", "values": ["b"]}]},
            'spec.requirements[0].operator: "Equals" is not allowed; allowed are In, NotIn',
        ),
        ({"limits": {"resources": {"cpu": "many"}}}, 'spec.limits.resources.cpu: "many" is not a quantity'),
        ({"ttlSecondsAfterEmpty": -1}, "spec.ttlSecondsAfterEmpty: -1 is not allowed; allowed is 0 or more"),
        ({"ttlSecondsAfterEmpty": 30, "consolidation": {"enabled": True}}, "spec.ttlSecondsAfterEmpty: 30"),
        ({"weight": 0}, "spec.weight: 0 is not allowed; allowed is 1 to 100"),
        ({"labels": {"karpenter.sh/nodepool": "x"}}, "spec.labels.karpenter.sh/nodepool"),
        ({"taints": [{"key": "a", "effect": "Never"}]}, 'spec.taints[0].effect: "Never"'),
        ({"kubeletConfiguration": {"maxPods": -1}}, "spec.kubeletConfiguration.maxPods: -1"),
        ({"ttlSecondsAfterEmpty": "soon"}, 'spec.ttlSecondsAfterEmpty: "soon" is not an integer'),
    ],
)
def test_a_provisioners_problem_names_the_users_own_field(spec: dict[str, Any], problem: str) -> None:
    decoded = node_pool(provisioner(**spec))
    assert decoded.value is None
    assert len(decoded.problems) == 1
    assert decoded.problems[0].startswith(problem)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"subnetSelector": {}}, "spec.subnetSelector: is empty"),
        ({"securityGroupSelector": None}, "spec.securityGroupSelector: is empty"),
        ({"subnetSelector": {"aws-ids": "sg-1"}}, 'spec.subnetSelector.aws-ids: "sg-1" is not allowed'),
        ({"amiFamily": "Ubuntu"}, 'spec.amiFamily: "Ubuntu" is not allowed; allowed are AL2, AL2023'),
        ({"amiFamily": "Custom"}, "spec.amiSelector: is empty"),
        ({"amiSelector": {"aws::owners": "self"}}, "spec.amiSelector: names only owners"),
        ({"launchTemplate": "mine"}, 'spec.launchTemplate: "mine" is not supported'),
        ({"tags": {"kubernetes.io/cluster/c": "owned"}}, "spec.tags.kubernetes.io/cluster/c"),
        ({"metadataOptions": {"httpTokens": "maybe"}}, 'spec.metadataOptions.httpTokens: "maybe"'),
    ],
)
def test_a_node_templates_problem_names_the_users_own_field(spec: dict[str, Any], problem: str) -> None:
    decoded = node_class(template(**spec))
    assert decoded.value is None
    assert len(decoded.problems) == 1
    assert decoded.problems[0].startswith(problem)
