"""A NodePool whose zones have no subnet has a conflict that names both fields."""

from __future__ import annotations

from shared.api.kubernetes import NodeSelectorRequirement
from shared.api.meta import ObjectMeta
from shared.api.nodeclass import EC2NodeClass, EC2NodeClassStatus, ResolvedSubnet
from shared.api.nodepool import NodeClaimTemplate, NodePool, NodePoolSpec, TemplateSpec
from shared.launch.resolved_node_pools import zone_conflict

CLASS = EC2NodeClass(
    metadata=ObjectMeta(name="general"),
    status=EC2NodeClassStatus(subnets=[ResolvedSubnet(id="s-1", zone="us-east-1a", zone_id="use1-az1")]),
)


def pool(*requirements: tuple[str, str, list[str]]) -> NodePool:
    given = [NodeSelectorRequirement(key=k, operator=o, values=v) for k, o, v in requirements]
    template = NodeClaimTemplate(spec=TemplateSpec(requirements=given))
    return NodePool(metadata=ObjectMeta(name="web"), spec=NodePoolSpec(template=template))


def test_a_pool_whose_zones_have_no_subnet_names_both_fields() -> None:
    conflict = zone_conflict(pool(("topology.kubernetes.io/zone", "In", ["ap-northeast-2a", "ap-northeast-2c"])), CLASS)
    assert conflict == (
        "spec.subnetSelectorTerms of EC2NodeClass general selects subnets in us-east-1a (use1-az1) only, "
        "but NodePool web requires topology.kubernetes.io/zone In ap-northeast-2a, ap-northeast-2c"
    )


def test_aliases_and_zone_ids_count_too() -> None:
    assert zone_conflict(pool(("failure-domain.beta.kubernetes.io/zone", "NotIn", ["us-east-1a"])), CLASS) is not None
    assert zone_conflict(pool(("topology.k8s.aws/zone-id", "In", ["use1-az1"])), CLASS) is None


def test_a_pool_without_zones_or_with_a_common_zone_has_no_conflict() -> None:
    assert zone_conflict(pool(), CLASS) is None
    assert zone_conflict(pool(("topology.kubernetes.io/zone", "In", ["us-east-1a", "us-east-1b"])), CLASS) is None
