"""Kubelet settings of a class: any field of the kubelet's configuration, by its type and by what the kubelet takes."""

from __future__ import annotations

from typing import Any

import pytest

from shared.api.decode import node_class, node_pool
from shared.api.kubelet import SETTINGS
from shared.api.validation.kubelet import known_fields, reason

TERMS = [{"tags": {"team": "search"}}]


def problems(kubelet: dict[str, Any], **spec: object) -> tuple[str, ...]:
    whole = {
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": TERMS,
        "securityGroupSelectorTerms": TERMS,
        "kubelet": kubelet,
        **spec,
    }
    raw = {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "c"}, "spec": whole}
    return node_class(raw).problems


@pytest.mark.parametrize(
    ("kubelet", "problem"),
    [
        ({"maxPods": -1}, "maxPods: -1 is not allowed; allowed is 0 or more"),
        ({"kubeReserved": {"gpu": "1"}}, 'kubeReserved.gpu: "gpu" is not allowed; allowed are cpu, memory'),
        ({"systemReserved": {"cpu": "-1"}}, 'systemReserved.cpu: "-1" is negative'),
        ({"evictionHard": {"memory.free": "5%"}}, 'evictionHard.memory.free: "memory.free" is not allowed'),
        ({"evictionHard": {"memory.available": "101%"}}, 'evictionHard.memory.available: "101%" is not a quantity'),
        ({"evictionSoft": {"memory.available": "5%"}}, "evictionSoft.memory.available: has no grace period"),
        (
            {"evictionSoftGracePeriod": {"pid.available": "1m"}},
            "evictionSoftGracePeriod.pid.available: has no",
        ),
        ({"imageGCHighThresholdPercent": 101}, "imageGCHighThresholdPercent: 101 is not allowed"),
        (
            {"imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 50},
            "imageGCHighThresholdPercent: 50 is not allowed; allowed is more than the low one, 50",
        ),
        ({"clusterDNS": ["dns"]}, 'clusterDNS[0]: "dns" is not an IP address'),
        ({"evictionMinimumReclaim": {"memory.free": "5%"}}, 'evictionMinimumReclaim.memory.free: "memory.free"'),
        ({"evictionMinimumReclaim": {"pid.available": "-1"}}, 'evictionMinimumReclaim.pid.available: "-1" is negative'),
        ({"kubeReserved": {"cpu": "-vcpus"}}, 'kubeReserved.cpu: "-vcpus" is negative'),
        ({"podsPerCore": -1}, "podsPerCore: -1 is not allowed; allowed is 0 or more"),
        ({"evictionMaxPodGracePeriod": -1}, "evictionMaxPodGracePeriod: -1 is not allowed; allowed is 0 or more"),
        (
            {"registerWithTaints": [{"key": "a", "effect": "NoSchedule"}]},
            'registerWithTaints: [{"key":"a","effect":"NoSchedule"}] is not allowed; taints are those of the NodePool',
        ),
        ({"maxPod": 30}, "maxPod: 30 is not allowed; the kubelet v1.37 has no such setting"),
        ({"logging": {"level": 2}}, "logging.level: 2 is not allowed; the kubelet v1.37 has no such setting"),
        ({"failSwapOn": "no"}, 'failSwapOn: "no" is not allowed; allowed is true or false'),
        ({"maxPods": 1.5}, "maxPods: 1.5 is not allowed; allowed is an integer of 0 to 2147483647, or an expression"),
        ({"maxPods": True}, "maxPods: true is not allowed"),
        ({"podPidsLimit": 2**63}, "podPidsLimit: 9223372036854775808 is not allowed; allowed is an integer of -922"),
        ({"shutdownGracePeriod": 45}, "shutdownGracePeriod: 45 is not allowed; allowed is a duration such as 30s"),
        ({"shutdownGracePeriod": "Never"}, 'shutdownGracePeriod: "Never" is not allowed'),
        ({"allowedUnsafeSysctls": "net.*"}, 'allowedUnsafeSysctls: "net.*" is not a list'),
        ({"allowedUnsafeSysctls": [1]}, "allowedUnsafeSysctls[0]: 1 is not allowed; allowed is text; put it in quotes"),
        ({"evictionHard": {"pid.available": 5}}, "evictionHard.pid.available: 5 is not allowed; allowed is text"),
        ({"authentication": ["x509"]}, 'authentication: ["x509"] is not a map'),
        ({"memoryThrottlingFactor": "0.9"}, 'memoryThrottlingFactor: "0.9" is not allowed; allowed is a number'),
        (
            {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "lots"}}]},
            'reservedMemory[0].limits.memory: "lots" is not allowed; allowed is a quantity such as 500m or 1Gi',
        ),
    ],
)
def test_bad_kubelet_settings_are_reported_by_field(kubelet: dict[str, Any], problem: str) -> None:
    (only,) = problems(kubelet)
    assert only.startswith(f"spec.kubelet.{problem}")


def test_any_setting_of_a_kubelet_is_accepted() -> None:
    kubelet = {
        "maxPods": "vcpus * 20",
        "kubeReserved": {"cpu": "max(60, vcpus * 30)", "memory": "1Gi", "pid": 1000},
        "evictionMinimumReclaim": {"memory.available": "500Mi", "nodefs.available": "5%"},
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
        "featureGates": {"NodeSwap": True},
        "failSwapOn": False,
        "podPidsLimit": -1,
        "shutdownGracePeriod": "45s",
        "shutdownGracePeriodByPodPriority": [{"priority": 0, "shutdownGracePeriodSeconds": 10}],
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        "logging": {"flushFrequency": 5000000000, "verbosity": 2, "vmodule": [{"filePattern": "x", "verbosity": 4}]},
        "staticPodURLHeader": {"a": ["b"]},
        "memoryThrottlingFactor": 0.9,
        "resolvConf": "",
        "tracing": None,
        "enforceNodeAllocatable": [],
    }
    assert problems(kubelet) == ()


def test_the_settings_are_all_those_that_the_kubelet_publishes() -> None:
    table = known_fields()
    assert table.version == "v1.37"
    assert table.fields.keys() >= SETTINGS
    assert len(table.fields) > 120


def test_a_class_with_nothing_but_bad_kubelet_settings_has_a_reason_of_its_own() -> None:
    kubelets, terms = problems({"maxPod": 30}), problems({}, subnetSelectorTerms=[])
    assert reason(kubelets, otherwise="Invalid") == "InvalidKubeletConfiguration"
    assert reason((*kubelets, *terms), otherwise="Invalid") == "Invalid"
    assert reason((), otherwise="Invalid") == "Invalid"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"kubeReserved": {"cpu": "vcpus * 30"}}, 'kubeReserved.cpu: "vcpus * 30" is not a quantity'),
        ({"systemReserved": {"gpu": "1"}}, 'systemReserved.gpu: "gpu" is not allowed'),
        ({"maxPods": -1}, "maxPods: -1 is not allowed"),
    ],
)
def test_a_provisioner_has_the_same_rules_and_no_expressions(settings: dict[str, Any], problem: str) -> None:
    spec = {"providerRef": {"name": "default"}, "kubeletConfiguration": settings}
    raw = {"apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner", "metadata": {"name": "p"}, "spec": spec}
    (only,) = node_pool(raw).problems
    assert only.startswith(f"spec.kubeletConfiguration.{problem}")
