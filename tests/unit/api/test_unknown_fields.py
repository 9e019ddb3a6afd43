"""Fields of newer versions, which Karpenter's own definitions let through: named, not dropped."""

from __future__ import annotations

from typing import Any

import pytest

from shared.api import decode

Raw = dict[str, Any]

TERMS = [{"tags": {"team": "search"}}]
CLASS = {
    "amiSelectorTerms": [{"alias": "bottlerocket@latest"}],
    "subnetSelectorTerms": TERMS,
    "securityGroupSelectorTerms": TERMS,
}


def node_class(**spec: object) -> tuple[str, ...]:
    raw = {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "search"}}
    return decode.node_class({**raw, "spec": {**CLASS, **spec}}).problems


def node_pool(template: Raw | None = None, **spec: object) -> tuple[str, ...]:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "search"}
    raw = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "search"}}
    template_spec = {"nodeClassRef": reference, "requirements": [], **(template or {})}
    return decode.node_pool({**raw, "spec": {"template": {"spec": template_spec}, **spec}}).problems


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"enclaveOptions": {"enabled": True, "memory": "1Gi"}}, "spec.enclaveOptions.memory"),
        ({"bootOptions": {"mode": "uefi"}}, "spec.bootOptions"),
        ({"subnetSelectorTerms": [*TERMS, {"id": "subnet-1", "vpc": "vpc-1"}]}, "spec.subnetSelectorTerms[1].vpc"),
        (
            {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "9Gi", "tier": "cold"}}]},
            "spec.blockDeviceMappings[0].ebs.tier",
        ),
    ],
)
def test_a_class_with_a_field_that_is_not_supported_is_invalid_and_says_so(spec: Raw, field: str) -> None:
    (problem,) = node_class(**spec)
    assert problem.startswith(f"{field}: ")
    assert "not supported" in problem


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"bootOptions": {"secure": False}},
        {"enclaveOptions": None, "prefixes": 0},
        {"kubelet": {"allowedUnsafeSysctls": [], "maxPods": 40}},
        {"networkInterfaces": [{"deviceIndex": 0, "networkCardIndex": 0}]},
    ],
)
def test_values_that_mean_none_and_open_objects_are_accepted(spec: Raw) -> None:
    assert node_class(**spec) == ()


def test_a_pool_may_have_a_field_of_an_old_version() -> None:
    """The API server drops it, as v1 doesn't have it."""
    assert node_pool({"kubelet": {"containerRuntime": "dockerd"}}, disruption={"expireAfter": "12h"}) == ()


def test_a_budget_for_a_reason_of_a_newer_version_is_named() -> None:
    (problem,) = node_pool(disruption={"budgets": [{"nodes": "2", "reasons": ["Unstable"]}]})
    assert '"Unstable"' in problem
    assert problem.startswith("spec.disruption.budgets[0].reasons[0]: ")
