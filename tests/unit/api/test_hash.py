from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.api import labels as names
from shared.api.decode import decode
from shared.api.hash import hash_node_class, hash_node_pool, is_node_pool_hash, node_pool_hash_version
from shared.api.meta import ObjectMeta
from shared.api.nodeclass import EC2NodeClass
from shared.api.nodepool import NodePool
from shared.base.struct import with_fields

A = {"key": "a", "effect": "NoSchedule"}
B = {"key": "b", "effect": "NoExecute"}


def pool(template: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None, **spec: object) -> NodePool:
    return decode({"spec": {"template": {"metadata": metadata or {}, "spec": template or {}}, **spec}}, NodePool)


def node_class(**spec: object) -> EC2NodeClass:
    return decode({"spec": spec}, EC2NodeClass)


@pytest.mark.parametrize(
    "changed",
    [
        pool(limits={"cpu": 1}),
        pool(weight=7),
        pool(replicas=3),
        pool(disruption={"budgets": [{"nodes": "1"}], "consolidateAfter": "1h"}),
        pool({"requirements": [{"key": "a", "operator": "Exists"}]}),
        pool({"taints": [], "expireAfter": "720h"}),
    ],
)
def test_what_needs_no_new_node_leaves_the_pools_hash(changed: NodePool) -> None:
    assert hash_node_pool(changed) == hash_node_pool(pool())


@pytest.mark.parametrize(
    "changed",
    [
        pool(metadata={"labels": {"a": "b"}}),
        pool(metadata={"annotations": {"a": "b"}}),
        pool({"taints": [A]}),
        pool({"startupTaints": [A]}),
        pool({"expireAfter": "Never"}),
        pool({"terminationGracePeriod": "1h"}),
        pool({"nodeClassRef": {"name": "other"}}),
    ],
)
def test_what_nodes_are_made_from_changes_the_pools_hash(changed: NodePool) -> None:
    assert hash_node_pool(changed) != hash_node_pool(pool())


def test_order_does_not_change_the_hash() -> None:
    assert hash_node_pool(pool({"taints": [A, B]})) == hash_node_pool(pool({"taints": [B, A]}))


@pytest.mark.parametrize(
    "changed",
    [
        node_class(subnetSelectorTerms=[{"id": "subnet-1"}]),
        node_class(securityGroupSelectorTerms=[{"id": "sg-1"}]),
        node_class(amiSelectorTerms=[{"id": "ami-1"}]),
        node_class(capacityReservationSelectorTerms=[{"id": "cr-1"}]),
        node_class(ipPrefixCount=2),
    ],
)
def test_what_selects_is_judged_by_what_it_selects_not_by_the_hash(changed: EC2NodeClass) -> None:
    assert hash_node_class(changed) == hash_node_class(node_class())


@pytest.mark.parametrize(
    "changed",
    [
        node_class(userData="x"),
        node_class(role="x"),
        node_class(tags={"a": "b"}),
        node_class(kubelet={"maxPods": 1}),
        node_class(amiFamily="AL2"),
        node_class(blockDeviceMappings=[{"deviceName": "a"}]),
        node_class(metadataOptions={"httpTokens": "optional"}),
        node_class(cpuOptions={"coreCount": 1}),
        node_class(enclaveOptions={"enabled": True}),
    ],
)
def test_what_instances_are_made_from_changes_the_class_hash(changed: EC2NodeClass) -> None:
    assert hash_node_class(changed) != hash_node_class(node_class())


SETTINGS = {
    "cpuCFSQuota": False,
    "clusterDNS": ["10.0.0.10", "10.0.0.11"],
    "evictionSoft": {"memory.available": "5%"},
    "evictionSoftGracePeriod": {"memory.available": "1m"},
    "systemReserved": {"cpu": 1, "memory": "1Gi"},
    "kubeReserved": {"cpu": "100m"},
    "imageGCHighThresholdPercent": 85,
    "imageGCLowThresholdPercent": 80,
    "podsPerCore": 0,
    "evictionMaxPodGracePeriod": 60,
}
BEFORE = [
    ({}, "44136fa355b3678a"),
    ({"enclaveOptions": {"enabled": False}}, "44136fa355b3678a"),
    ({"ipPrefixCount": 0}, "44136fa355b3678a"),
    ({"kubelet": {}}, "2ae1c1a5781c4580"),
    ({"kubelet": {"maxPods": 110}}, "9eb5f823be7855a5"),
    ({"kubelet": {"maxPods": 110, "kubeReserved": {}, "clusterDNS": [], "evictionHard": None}}, "9eb5f823be7855a5"),
    ({"kubelet": SETTINGS}, "644df788bed200ff"),
    ({"kubelet": {"maxPods": 40, "allowedUnsafeSysctls": []}, "tags": {"a": "b"}}, "6b799ce477e7f8fe"),
]
"""Specs, each with the hash that NodeClaims got while twelve settings of the kubelet were read, and no enclaves."""


@pytest.mark.parametrize(("spec", "expected"), BEFORE)
def test_nodes_of_an_unchanged_class_have_not_drifted(spec: dict[str, Any], expected: str) -> None:
    assert hash_node_class(node_class(**spec)) == expected


BY_KARPENTER = [
    ({"metadata": {}, "spec": {"expireAfter": "720h"}}, "6821555240594823858"),
    (
        {
            "metadata": {"labels": {"team": "a", "tier": "web"}, "annotations": {"example.com/x": "y"}},
            "spec": {
                "expireAfter": "Never",
                "terminationGracePeriod": "48h",
                "taints": [{"key": "a", "effect": "NoSchedule", "value": "x"}, {"key": "b", "effect": "NoExecute"}],
                "startupTaints": [{"key": "c", "effect": "NoSchedule"}],
            },
        },
        "15116590471669037335",
    ),
    (
        {
            "metadata": {"labels": {}, "annotations": {}},
            "spec": {"expireAfter": "1h30m", "terminationGracePeriod": "0s", "taints": [], "startupTaints": []},
        },
        "17960394953725667426",
    ),
]
"""Templates, each with the hash that NodePool.Hash of Karpenter 1.14.1 returns."""


@pytest.mark.parametrize(("template", "expected"), BY_KARPENTER)
def test_the_hash_of_a_node_pool_is_karpenters(template: dict[str, Any], expected: str) -> None:
    reference = {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}
    given = pool({**template["spec"], **reference}, template["metadata"])
    assert is_node_pool_hash(expected, given)
    stored = with_fields(given, metadata=ObjectMeta(annotations={names.NODEPOOL_HASH: expected}))
    assert hash_node_pool(stored) == expected
    if template["metadata"] != {"labels": {}, "annotations": {}}:
        assert hash_node_pool(given) == expected


def test_a_provisioner_has_a_hash_of_its_own() -> None:
    converted = with_fields(pool(), kind="Provisioner")
    assert node_pool_hash_version(converted) == "tenon-v1"
    assert hash_node_pool(converted) != hash_node_pool(pool())


def test_a_hash_is_the_same_in_every_release() -> None:
    provisioner = with_fields(pool({"taints": [A], "nodeClassRef": {"name": "default"}}), kind="Provisioner")
    assert hash_node_pool(provisioner) == "585ec8baf484d6a8"
    assert hash_node_class(node_class(role="nodes", tags={"a": "b"})) == "44c7933de64b893b"


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5), min_size=2, max_size=5))
def test_the_order_of_labels_does_not_change_the_hash(labels: dict[str, str]) -> None:
    turned = dict(reversed(labels.items()))
    assert hash_node_pool(pool(metadata={"labels": labels})) == hash_node_pool(pool(metadata={"labels": turned}))
